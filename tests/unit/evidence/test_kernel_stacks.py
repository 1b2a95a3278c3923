"""Kernel stacks of real threads, and who is asked for one at all."""

import os

import msgspec
import pytest
from tests.unit.evidence.conftest import Eyes, Programs

from firstlight import procfs
from firstlight.clock import Deadline, SystemClock
from firstlight.core.gap import Gap
from firstlight.core.look import ThreadLook
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.stacks import kernel
from firstlight.evidence.stacks.kernel import needs_one, with_kernel_stacks

CLOCK = SystemClock()
REFUSED = Gap(what="system call", reason=GapReason.NO_PERMISSION)


def thread(syscall: str | Gap, state: str = "S", tid: int = 7) -> ThreadLook:
    return ThreadLook(tid=tid, name="t", state=state, cpu_s=0.0, wchan="", syscall=syscall)


@pytest.mark.parametrize(
    ("one", "needed"),
    [
        (thread("read(0x0)", "D"), True),
        (thread("none: it blocks outside of any system call"), True),
        (thread("syscall_999(0x0)"), True),
        (thread(REFUSED), True),
        (thread("running", "R"), False),
        (thread("futex(0x1)"), False),
    ],
)
def test_asked_is_who_is_not_explained(one: ThreadLook, needed: bool) -> None:
    assert needs_one(one) is needed


def a_waiting_thread(programs: Programs, eyes: Eyes) -> tuple[int, ThreadLook]:
    process = programs.python("import time\nprint('ready', flush=True)\ntime.sleep(600)")
    found = eyes.until_in("clock_nanosleep", process).threads[0]
    return process.id.pid, msgspec.structs.replace(found, state="D")


def test_names_of_kernel_functions_innermost_first_or_why_there_are_none(programs: Programs, eyes: Eyes) -> None:
    pid, waiting = a_waiting_thread(programs, eyes)
    seen = with_kernel_stacks(pid, [waiting, thread("futex(0x1)", tid=8)], Deadline(CLOCK, 20, "kernel stacks"))
    assert seen[1].kernel == ()
    kernel = seen[0].kernel
    if isinstance(kernel, Gap):
        assert kernel.reason in {GapReason.NO_PERMISSION, GapReason.NOT_SUPPORTED}
    else:
        assert any("nanosleep" in name for name in kernel)
        assert not any("+0x" in name for name in kernel)


def test_a_thread_that_is_gone_is_a_gap(programs: Programs) -> None:
    seen = with_kernel_stacks(os.getpid(), [thread(REFUSED, tid=2**22 + 1)], Deadline(CLOCK, 20, "kernel stacks"))
    kernel = seen[0].kernel
    assert isinstance(kernel, Gap)
    assert kernel.reason is GapReason.VANISHED


def test_a_read_that_blocks_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process can be made to block this read on demand; a pipe that nobody writes to stands for it."""
    reading, writing = os.pipe()
    monkeypatch.setattr(procfs, "kernel_stack", lambda _pid, tid: ("f",) if tid == 1 else (os.read(reading, 1),))
    seen = with_kernel_stacks(4, [thread(REFUSED, tid=tid) for tid in (1, 2, 3)], Deadline(CLOCK, 0.5, "stacks"))
    assert seen[0].kernel == ("f",)
    assert all(isinstance(one.kernel, Gap) and one.kernel.reason is GapReason.TIMED_OUT for one in seen[1:])
    os.write(writing, b"x")
    os.close(writing)


def test_only_so_many_are_asked() -> None:
    many = [thread(REFUSED, tid=2**22 + 1 + n) for n in range(100)]
    seen = with_kernel_stacks(os.getpid(), many, Deadline(CLOCK, 20, "kernel stacks"))
    assert sum(one.kernel != () for one in seen) == kernel.THREADS_MAX
