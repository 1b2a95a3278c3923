"""What /proc tells of one process and its threads: state, CPU, I/O, memory, where each thread waits in the kernel.

Price: reads. Every field that is refused is a gap in its place; a process that is gone, or is another process under
the same pid by now, raises `ProcessLookupError`.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from firstlight import procfs
from firstlight.core import redact
from firstlight.core.gap import Gap
from firstlight.core.look import ProcessLook, ThreadLook
from firstlight.core.process import Process, ProcessSample
from firstlight.core.vocabulary import GapReason
from firstlight.evidence import syscalls
from firstlight.evidence.futexes import Owners, futex_of

THREADS_MAX = 512

_T = TypeVar("_T")


def look_at(process: Process) -> ProcessLook:
    """Everything cheap about one process.

    Raises:
        ProcessLookupError: it has ended, or its pid belongs to another process now.
    """
    sample = procfs.sample(process.id)
    threads, gaps = _threads(process.id.pid)
    procfs.stat_of(process.id)
    return ProcessLook(
        process=_redacted(process),
        sample=sample,
        tracer=_tracer(process.id.pid),
        threads=threads,
        gaps=(*_refused(sample, threads), *gaps),
    )


def _refused(sample: ProcessSample, threads: tuple[ThreadLook, ...]) -> tuple[Gap, ...]:
    """What was refused of the process as a whole, once, however many threads it concerns."""
    fields = (sample.read_bytes, *(thread.syscall for thread in threads))
    return tuple(dict.fromkeys(field for field in fields if isinstance(field, Gap)))


def _threads(pid: int) -> tuple[tuple[ThreadLook, ...], tuple[Gap, ...]]:
    tids = sorted(procfs.tids(pid), key=lambda tid: (tid != pid, tid))
    threads = []
    owners = Owners(pid, len(tids))
    for tid in tids[:THREADS_MAX]:
        try:
            threads.append(_thread(pid, tid, owners))
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that just ended waits for nothing
    if len(tids) <= THREADS_MAX:
        return tuple(threads), ()
    detail = f"{len(tids)} threads; the first {THREADS_MAX} were looked at"
    return tuple(threads), (Gap(what="threads", reason=GapReason.NOT_SUPPORTED, detail=detail, pid=pid),)


def _thread(pid: int, tid: int, owners: Owners) -> ThreadLook:
    stat = procfs.stat(pid, tid)
    call = _or_gap(partial(_call, pid, tid), "system call", pid)
    awaited = None if isinstance(call, Gap) else call.futex
    return ThreadLook(
        tid=tid,
        name=stat.comm,
        state=stat.state,
        cpu_s=stat.cpu_s,
        wchan=_or_gap(partial(procfs.wchan, pid, tid), "kernel function", pid),
        syscall=call if isinstance(call, Gap) else call.text,
        fds=() if isinstance(call, Gap) else call.fds,
        path="" if isinstance(call, Gap) else call.path,
        futex=futex_of(awaited, tid, partial(procfs.memory, pid), owners) if awaited else None,
    )


def _call(pid: int, tid: int) -> syscalls.Call:
    call = syscalls.decode(procfs.syscall(pid, tid), partial(procfs.memory, pid))
    return call._replace(fds=tuple(procfs.epoll_members(pid, call.epoll))) if call.epoll >= 0 else call


def _tracer(pid: int) -> int:
    return int(procfs.status(pid).get("TracerPid", "0"))


def _redacted(process: Process) -> Process:
    name, command = redact.text(process.name), redact.command(process.cmdline)
    return msgspec.structs.replace(process, name=name, cmdline=command)


def _or_gap(read: Callable[[], _T], what: str, pid: int) -> _T | Gap:
    try:
        return read()
    except (FileNotFoundError, ProcessLookupError):
        raise
    except OSError as error:
        return procfs.gap_from(error, what, pid)
