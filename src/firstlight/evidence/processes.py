"""What /proc tells of one process and its threads: state, CPU, I/O, memory, where each thread waits in the kernel.

Price: reads. Every field that is refused is a gap in its place; a process that is gone, or is another process under
the same pid by now, raises `ProcessLookupError`.
"""

import errno
import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from firstlight import procfs
from firstlight.core import redact
from firstlight.core.gap import Gap
from firstlight.core.look import ProcessLook, ThreadLook, TimeLimit
from firstlight.core.process import Process, ProcessSample
from firstlight.core.vocabulary import GapReason
from firstlight.evidence import syscalls
from firstlight.evidence.futexes import Memory, Owners, futex_of
from firstlight.evidence.timeouts import Timeout

THREADS_MAX = 512
MAP_LOCKED = "a thread waits in the kernel for the process's memory map, and whoever reads its memory waits with it"

_WAITS_FOR_MAP = re.compile(r"rwsem_down|mmap_(read|write)_lock|lock_mm|lock_vma|vma_start_write")

_T = TypeVar("_T")


def look_at(process: Process, at: float) -> ProcessLook:
    """Everything cheap about one process; `at` is the moment of the look, by CLOCK_MONOTONIC.

    Raises:
        ProcessLookupError: it has ended, or its pid belongs to another process now.
    """
    sample = procfs.sample(process.id)
    threads, gaps = _threads(process.id.pid, at)
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


class _Stand(NamedTuple):
    """Where a thread stands, from files that no lock of the process can hold up."""

    stat: procfs.Stat
    wchan: str | Gap


class _Whole(NamedTuple):
    """What all threads of a process share, and the moment of the look."""

    pid: int
    memory: Memory
    owners: Owners
    at: float


def _threads(pid: int, at: float) -> tuple[tuple[ThreadLook, ...], tuple[Gap, ...]]:
    tids = sorted(procfs.tids(pid), key=lambda tid: (tid != pid, tid))
    stands = {tid: stand for tid in tids[:THREADS_MAX] if (stand := _while_it_lives(partial(_stand, pid, tid)))}
    gaps = []
    memory: Memory = partial(procfs.memory, pid)
    if any(waits_for_memory_map(one.stat.state, one.wchan) for one in stands.values()):
        memory = _refuse
        gaps.append(Gap(what="memory", reason=GapReason.TIMED_OUT, detail=MAP_LOCKED, pid=pid))
    whole = _Whole(pid, memory, Owners(pid), at)
    looks = (_while_it_lives(partial(_thread, whole, tid, one)) for tid, one in stands.items())
    threads = tuple(one for one in looks if one)
    if len(tids) > THREADS_MAX:
        detail = f"{len(tids)} threads; the first {THREADS_MAX} were looked at"
        gaps.append(Gap(what="threads", reason=GapReason.NOT_SUPPORTED, detail=detail, pid=pid))
    return threads, tuple(gaps)


def waits_for_memory_map(state: str, wchan: str | Gap) -> bool:
    """Whether a thread waits in the kernel for its process's memory map, as whoever reads its memory would. Pure."""
    return state == "D" and isinstance(wchan, str) and _WAITS_FOR_MAP.search(wchan) is not None


def _refuse(_address: int, _length: int) -> bytes:
    raise BlockingIOError(errno.EAGAIN, MAP_LOCKED)


def _while_it_lives(read: Callable[[], _T]) -> _T | None:
    """What is read of a thread; None of one that has just ended, and waits for nothing."""
    try:
        return read()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _stand(pid: int, tid: int) -> _Stand:
    return _Stand(procfs.stat(pid, tid), _or_gap(partial(procfs.wchan, pid, tid), "kernel function", pid))


def _thread(whole: _Whole, tid: int, stand: _Stand) -> ThreadLook:
    call = _or_gap(partial(_call, whole.pid, tid, whole.memory), "system call", whole.pid)
    seen = syscalls.Call("") if isinstance(call, Gap) else call
    return ThreadLook(
        tid=tid,
        name=stand.stat.comm,
        state=stand.stat.state,
        cpu_s=stand.stat.cpu_s,
        wchan=stand.wchan,
        syscall=call if isinstance(call, Gap) else call.text,
        fds=seen.fds,
        path=seen.path,
        futex=futex_of(seen.futex, tid, whole.memory, whole.owners) if seen.futex else None,
        limit=_limit(seen.timeout, whole.at) if seen.timeout else None,
    )


def _limit(timeout: Timeout, at: float) -> TimeLimit:
    return TimeLimit(seconds=timeout.seconds - at * timeout.absolute, exact=timeout.absolute)


def _call(pid: int, tid: int, memory: Memory) -> syscalls.Call:
    call = syscalls.decode(procfs.syscall(pid, tid), memory)
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
