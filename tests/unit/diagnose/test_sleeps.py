"""Who sleeps is told from who waits for somebody with a time-out."""

import pytest
from tests.unit.diagnose.conftest import NOW, REFUSED, look, process, stack, thread

from firstlight.core.gap import Gap
from firstlight.core.look import Frame, OpenFile, ProcessLook, ThreadLook, TimeLimit
from firstlight.diagnose import sleeping
from firstlight.diagnose.sleeps import Asleep

APART_S = 5.0
LIMIT = TimeLimit(seconds=40.0, exact=True)
ASLEEP = Asleep(LIMIT)
RUNS_PYTHON = stack("work /app/pool.py:3")


def main(limit: TimeLimit | None = LIMIT, fds: tuple[int, ...] = (), call: str = "epoll_wait(0x3)") -> ThreadLook:
    return thread(100, stack("connect /app/retry.py:8"), limit=limit, fds=fds, call=call)


def other(frames: tuple[Frame, ...] | Gap) -> ThreadLook:
    return thread(101, frames, limit=LIMIT)


def pair(peers: tuple[int, ...] | Gap, target: str = "socket:[7]") -> OpenFile:
    return OpenFile(fd=4, kind="socket", target=target, peers=peers)


def sleep_of(one: ProcessLook, before: ProcessLook | None = None) -> Asleep | None:
    return sleeping(look(before or one, at=NOW), look(one, at=NOW + APART_S)).get(100)


def test_a_main_thread_that_only_the_clock_wakes_sleeps() -> None:
    assert sleep_of(process(100, main(), other(RUNS_PYTHON))) == ASLEEP


def test_without_an_end_nobody_sleeps() -> None:
    assert sleep_of(process(100, main(limit=None))) is None


def test_another_thread_that_sleeps_is_not_the_process() -> None:
    assert sleep_of(process(100, main(limit=None), other(RUNS_PYTHON))) is None


def test_a_peer_that_is_waited_for_is_no_sleep() -> None:
    assert sleep_of(process(100, main(fds=(4,)), files=(pair((100, 200)),))) is None
    assert sleep_of(process(100, main(fds=(4,)), files=(pair((200,)),))) is None
    assert sleep_of(process(100, main(fds=(4,)), files=(pair(()),))) is None


def test_a_loop_that_only_itself_could_wake_sleeps() -> None:
    assert sleep_of(process(100, main(fds=(4,)), other(()), files=(pair((100,)),))) == ASLEEP
    assert sleep_of(process(100, main(fds=(4,)), files=(pair((), "anon_inode:[eventfd]"),))) == ASLEEP


@pytest.mark.parametrize("call", ["poll(0x7f00, 0x1, 0xea60)", "recvfrom(0x4)", "select(0x5)", REFUSED])
def test_a_queue_or_socket_of_ones_own_that_is_waited_for_is_no_sleep(call: str | Gap) -> None:
    assert sleep_of(process(100, main(fds=(4,), call=call), files=(pair((100,)),))) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("frames", [RUNS_PYTHON, REFUSED])
def test_a_loop_that_another_thread_may_wake_does_not(frames: tuple[Frame, ...] | Gap) -> None:
    busy = thread(101, frames, call="futex(0x1)")
    assert sleep_of(process(100, main(fds=(4,)), busy, files=(pair((100,)),))) is None


THREADING, FUTURES = "/usr/lib/python3.11/threading.py", "/usr/lib/python3.11/concurrent/futures/_base.py"
WAITS_FOR_THREADS = [
    stack(f"Thread._wait_for_tstate_lock {THREADING}:1119", f"Thread.join {THREADING}:1100", "main /app/main.py:9"),
    stack(f"Condition.wait {THREADING}:320", f"Future.result {FUTURES}:451", "main /app/main.py:9"),
    stack(f"Condition.wait {THREADING}:320", f"as_completed {FUTURES}:243", "main /app/main.py:9"),
    stack(f"_shutdown {THREADING}:1583"),
]
IDLE = stack("_worker /usr/lib/python3.11/concurrent/futures/thread.py:81", f"Thread.run {THREADING}:982")
RUNS_AN_ITEM = stack("_WorkItem.run /usr/lib/python3.11/concurrent/futures/thread.py:58")
RETRIES = stack("backoff /app/http.py:31", "fetch /app/hub.py:8", f"Thread.run {THREADING}:982")


def retrying(seconds: float, *others: ThreadLook, exact: bool = True, frames: tuple[Frame, ...]) -> ProcessLook:
    """A main thread that waits for threads, of which one sleeps."""
    limit = TimeLimit(seconds=seconds, exact=exact)
    return process(100, thread(100, frames, call="futex(0x1)"), thread(101, RETRIES, limit=limit), *others)


@pytest.mark.parametrize("frames", WAITS_FOR_THREADS)
def test_who_waits_for_threads_that_all_sleep_sleeps(frames: tuple[Frame, ...]) -> None:
    idle, ticks = (
        thread(102, IDLE, call="futex(0x2)"),
        thread(103, RUNS_PYTHON, limit=TimeLimit(seconds=1, exact=True)),
    )
    one = retrying(35.0, idle, ticks, frames=frames)
    assert sleep_of(one) == Asleep(TimeLimit(seconds=35.0, exact=True), 0.0)
    before = retrying(40.0, idle, ticks, frames=frames)
    assert sleep_of(one, before) == Asleep(TimeLimit(seconds=35.0, exact=True), APART_S)


def test_threads_whose_whole_work_is_to_sleep_count_if_there_are_no_others() -> None:
    """As threading.Thread(target=time.sleep) has none but frames of the standard library."""
    sleeps = thread(101, stack(f"Thread.run {THREADING}:982"), limit=LIMIT)
    waits = thread(100, WAITS_FOR_THREADS[0], call="futex(0x1)")
    assert sleep_of(process(100, waits, sleeps)) == Asleep(LIMIT, 0.0)
    busy = thread(102, RUNS_PYTHON, call="futex(0x2)")
    assert sleep_of(process(100, waits, sleeps, busy)) is None


def test_a_length_that_is_the_same_again_may_be_another_sleep() -> None:
    one = retrying(30.0, exact=False, frames=WAITS_FOR_THREADS[0])
    assert sleep_of(one) == Asleep(TimeLimit(seconds=30.0, exact=False), 0.0)


def test_a_thread_that_waits_for_somebody_keeps_the_others_from_being_blamed_on_a_sleep() -> None:
    blocked = thread(102, stack("fetch /app/hub.py:8"), call="recvfrom(0x4)", fds=(4,), limit=LIMIT)
    assert sleep_of(retrying(35.0, blocked, frames=WAITS_FOR_THREADS[0])) is None
    assert sleep_of(retrying(35.0, thread(102, REFUSED), frames=WAITS_FOR_THREADS[0])) is None


def test_a_worker_that_does_something_in_the_standard_library_counts() -> None:
    resolving = (*stack("getaddrinfo /usr/lib/python3.11/socket.py:962"), *RUNS_AN_ITEM)
    blocked = thread(102, resolving, call="recvfrom(0x4)", fds=(4,), limit=LIMIT)
    assert sleep_of(retrying(35.0, blocked, frames=WAITS_FOR_THREADS[0])) is None


def test_who_waits_for_a_lock_does_not_sleep_because_a_monitor_does() -> None:
    acquires = stack("load /app/load.py:3 lock.acquire(timeout=600)", "main /app/main.py:9")
    assert sleep_of(retrying(35.0, frames=acquires)) is None


def test_what_could_not_be_seen_is_not_taken_for_a_sleep() -> None:
    assert sleep_of(process(100, main(fds=(4,)))) is None
    assert sleep_of(process(100, main(fds=(4,)), files=(pair(REFUSED),))) is None
    assert sleep_of(process(100)) is None
