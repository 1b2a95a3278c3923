"""Kernel stacks of the threads that nothing else explains: in state D, or in no system call that has a name.

Price: reads. Each read may block behind an exec, so they are done in a worker that is left behind when it is late.
"""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from firstlight import procfs
from firstlight.clock import Deadline
from firstlight.core.gap import Gap
from firstlight.core.look import ThreadLook
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.workers import Probe

WHAT = "kernel stack"
THREADS_MAX = 64
FRAMES_MAX = 64

_Stack = tuple[str, ...] | Gap


def with_kernel_stacks(pid: int, threads: Sequence[ThreadLook], deadline: Deadline) -> tuple[ThreadLook, ...]:
    """The same threads, with the kernel stacks of those that need one. Ends by the deadline; never raises."""
    wanted = [thread.tid for thread in threads if needs_one(thread)][:THREADS_MAX]
    if not wanted:
        return tuple(threads)
    found: dict[int, _Stack] = {}
    missing = Probe(WHAT, partial(_read_all, pid, wanted, found), pid).result(deadline)
    stacks = {tid: found.get(tid, missing or ()) for tid in wanted}
    return tuple(
        msgspec.structs.replace(thread, kernel=stacks[thread.tid]) if thread.tid in stacks else thread
        for thread in threads
    )


def needs_one(thread: ThreadLook) -> bool:
    """Whether the system call of a thread leaves open what it waits for in the kernel. Pure."""
    if thread.state == "D":
        return True
    call = thread.syscall
    return isinstance(call, Gap) or re.match(r"none\b|syscall_", call) is not None


def _read_all(pid: int, tids: Sequence[int], found: dict[int, _Stack]) -> None:
    for tid in tids:
        found[tid] = _one(pid, tid)


def _one(pid: int, tid: int) -> _Stack:
    try:
        return procfs.kernel_stack(pid, tid)[:FRAMES_MAX]
    except PermissionError:
        detail = (
            "only root outside of any container may read kernel stacks (CAP_SYS_ADMIN): run `sudo firstlight look`"
        )
        return Gap(what=WHAT, reason=GapReason.NO_PERMISSION, detail=detail, pid=pid)
    except FileNotFoundError as error:
        if Path(f"/proc/{pid}/task/{tid}").exists():
            detail = "this kernel was built without CONFIG_STACKTRACE"
            return Gap(what=WHAT, reason=GapReason.NOT_SUPPORTED, detail=detail, pid=pid)
        return procfs.gap_from(error, WHAT, pid)
    except OSError as error:
        return procfs.gap_from(error, WHAT, pid)
