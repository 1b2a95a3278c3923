"""Semaphores of multiprocessing that nobody posts."""

import pytest
from tests.unit.evidence.conftest import Eyes, Programs

from firstlight.clock import Deadline, SystemClock
from firstlight.core.gap import Gap
from firstlight.core.look import Semaphore
from firstlight.core.process import Process
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.semaphores import semaphores

BEGIN = """
    import multiprocessing, os, time

    def sleep(one):
        time.sleep(600)

    def acquire(one):
        one.acquire()

    def wait(one):
        one.wait()

    def start(work, *given):
        child = context.Process(target=work, args=given, daemon=True)
        child.start()

    context = multiprocessing.get_context("{method}")
    if __name__ == "__main__":
"""


def within() -> Deadline:
    return Deadline(SystemClock(), 20, "semaphores")


def seen(eyes: Eyes, *processes: Process) -> tuple[Semaphore, ...]:
    looks = eyes.look(*processes, stacks=False).processes
    found = semaphores([one.id.pid for one in processes], looks, within())
    assert not isinstance(found, Gap)
    return found


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("kind", ["Lock", "Semaphore", "RLock"])
def test_a_lock_that_is_never_released_shows_who_waits(
    method: str, kind: str, programs: Programs, eyes: Eyes
) -> None:
    process = programs.python(
        BEGIN.format(method=method)
        + f"""
        one = context.{kind}()
        one.acquire()
        start(acquire, one)
        print("ready", flush=True)
        time.sleep(600)
    """
    )
    child = next(one for one in programs.children(process) if "resource_tracker" not in str(one.cmdline))
    eyes.until_in("futex", child)
    (found,) = seen(eyes, process, child)
    assert (found.value, found.waiting) == (0, (child.id.pid,))
    assert found.mapped_by == tuple(sorted((process.id.pid, child.id.pid)))
    assert found.path.startswith("/dev/shm/sem.")


def test_a_lock_that_is_free_holds_nobody_up(programs: Programs, eyes: Eyes) -> None:
    process = programs.python(
        BEGIN.format(method="fork")
        + """
        one = context.Lock()
        print("ready", flush=True)
        time.sleep(600)
    """
    )
    (found,) = seen(eyes, process)
    assert (found.value, found.waiting) == (1, ())


def test_a_barrier_that_one_never_reaches_shows_those_who_wait(programs: Programs, eyes: Eyes) -> None:
    process = programs.python(
        BEGIN.format(method="fork")
        + """
        one = context.Barrier(3)
        start(wait, one)
        start(wait, one)
        print("ready", flush=True)
        time.sleep(600)
    """
    )
    children = programs.children(process)
    for child in children:
        eyes.until_in("futex", child)
    found = seen(eyes, process, *children)
    assert {pid for one in found for pid in one.waiting} == {child.id.pid for child in children}
    assert all(one.value == 0 for one in found if one.waiting)
    assert found[0].waiting


def test_processes_that_are_gone_are_a_gap() -> None:
    found = semaphores([1 << 30], (), within())
    assert isinstance(found, Gap)
    assert found.reason is GapReason.VANISHED


def test_nobody_has_none() -> None:
    assert semaphores((), (), within()) == ()
