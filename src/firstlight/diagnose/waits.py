"""What one thread waits for, from its system call, its descriptors and its stack. Pure."""

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.look import Lock, OpenFile, ProcessLook, ThreadLook


class Kind(StrEnum):
    """The kinds of waiting that the kernel can tell apart."""

    RUNS = "runs"
    SLEEPS = "sleeps"
    FUTEX = "futex"
    READ = "read"
    WRITE = "write"
    POLL = "poll"
    OPEN = "open"
    ACCEPT = "accept"
    CONNECT = "connect"
    CHILD = "child"
    FILE_LOCK = "file lock"
    STORAGE = "storage"
    OTHER = "other"
    UNKNOWN = "unknown"


_CALLS: tuple[tuple[str, Kind], ...] = (
    (r"p?read(v|64)?v?2?|recv(from|m?msg)|mq_timedreceive|msgrcv", Kind.READ),
    (r"p?write(v|64)?|send(to|m?msg)|msgsnd|sendfile|splice", Kind.WRITE),
    (r"p?poll|p?select6?|epoll_p?wait2?", Kind.POLL),
    (r"futex|futex_waitv|sem(timed)?op", Kind.FUTEX),
    (r"(clock_)?nanosleep|pause|rt_sig(suspend|timedwait)", Kind.SLEEPS),
    (r"open(at2?)?", Kind.OPEN),
    (r"accept4?", Kind.ACCEPT),
    (r"connect", Kind.CONNECT),
    (r"wait4|waitid|vfork", Kind.CHILD),
    (r"flock", Kind.FILE_LOCK),
    (r"f(data)?sync|msync", Kind.STORAGE),
    (r"running|sched_yield", Kind.RUNS),
)
_KERNEL_FUNCTIONS: tuple[tuple[str, Kind], ...] = (
    (r"futex", Kind.FUTEX),
    (r"nanosleep", Kind.SLEEPS),
    (r"do_wait$|kernel_wait", Kind.CHILD),
    (r"wait_for_partner|fifo_open", Kind.OPEN),
    (r"pipe_read|unix_stream|wait_woken|tcp_recvmsg|sk_wait_data|skb_wait", Kind.READ),
    (r"pipe_write", Kind.WRITE),
    (r"poll_schedule|do_select|do_poll|ep_poll", Kind.POLL),
    (r"csk_accept", Kind.ACCEPT),
    (r"locks_lock|flock", Kind.FILE_LOCK),
    (r"folio|page|io_schedule|nfs|fuse|rpc_", Kind.STORAGE),
)
_RESTARTED = "restart_syscall"
"""A timed wait that goes on after a stop: which call it was, only the kernel function still tells."""


class Wait(NamedTuple):
    """What a thread waits for. `files` are the descriptors concerned, `pids` the processes that it waits for, `lock`
    the file lock in its way."""

    kind: Kind
    call: str
    files: tuple[OpenFile, ...] = ()
    pids: tuple[int, ...] = ()
    lock: Lock | None = None


def wait_of(thread: ThreadLook, look: ProcessLook, locks: tuple[Lock, ...]) -> Wait:
    """What `thread` of the process in `look` waits for."""
    kind, call = _kind(thread)
    files = _files(thread, look) if thread.fds else ()
    pid = look.process.id.pid
    if kind is Kind.CHILD:
        return Wait(kind, call, pids=_child(thread))
    lock = _lock(pid, locks) if kind is Kind.FILE_LOCK or call.startswith("fcntl") else None
    if lock:
        return Wait(Kind.FILE_LOCK, call, files, (lock.holder,) if lock.holder else (), lock)
    if kind is Kind.OPEN:
        return Wait(kind, call, tuple(one for one in look.files if one.fd < 0 and one.target.endswith(thread.path)))
    return Wait(kind, call, files, other_ends(files, pid))


def _files(thread: ThreadLook, look: ProcessLook) -> tuple[OpenFile, ...]:
    opened = {one.fd: one for one in look.files}
    return tuple(opened[fd] for fd in thread.fds if fd in opened)


def other_ends(files: tuple[OpenFile, ...], pid: int) -> tuple[int, ...]:
    """Who else holds the other end of what is waited for."""
    peers = (peer for one in files if not isinstance(one.peers, Gap) for peer in one.peers)
    return tuple(dict.fromkeys(peer for peer in peers if peer != pid))


def _kind(thread: ThreadLook) -> tuple[Kind, str]:
    if thread.state == "R":
        return Kind.RUNS, "running"
    if not isinstance(thread.syscall, Gap) and not thread.syscall.startswith(_RESTARTED):
        name = thread.syscall.partition("(")[0]
        kind = _by_call(name)
        if kind:
            return kind, name
        return (Kind.STORAGE if thread.state == "D" else Kind.OTHER), name
    if not isinstance(thread.wchan, Gap) and thread.wchan:
        return _by_kernel_function(thread.wchan), thread.wchan
    return Kind.UNKNOWN, ""


@lru_cache(maxsize=512)
def _by_call(name: str) -> Kind | None:
    return next((kind for pattern, kind in _CALLS if re.fullmatch(pattern, name)), None)


@lru_cache(maxsize=512)
def _by_kernel_function(name: str) -> Kind:
    return next((kind for pattern, kind in _KERNEL_FUNCTIONS if re.search(pattern, name)), Kind.OTHER)


def _child(thread: ThreadLook) -> tuple[int, ...]:
    """The child that wait4 or waitid names; none if it waits for any."""
    if isinstance(thread.syscall, Gap):
        return ()
    numbers = [int(word, 16) for word in re.findall(r"0x[0-9a-f]+", thread.syscall)]
    if thread.syscall.startswith("wait4") and numbers and 0 < numbers[0] < 1 << 31:
        return (numbers[0],)
    if thread.syscall.startswith("waitid") and len(numbers) > 1 and numbers[0] == 1:
        return (numbers[1],)
    return ()


def _lock(pid: int, locks: tuple[Lock, ...]) -> Lock | None:
    return next((lock for lock in locks if pid in lock.waiters), None)


_ACQUIRES = re.compile(r"\bacquire\b|^(async )?with\b.*:|\b_?r?lock\b", re.IGNORECASE)
_TAKES = re.compile(r"(^|\.)(acquire|_acquireLock|__enter__|_lock_unlock_module)$")
_TAKEN_BY_NAME = re.compile(r"importlib[./]_bootstrap|/logging/__init__\.py$")
_NO_LOCK = re.compile(r"(^|\.)(wait|wait_for|get|put|join|_wait_for_tstate_lock|result|barrier|accept|select|poll)$")


def acquires_lock(thread: ThreadLook) -> bool:
    """Whether a thread is stuck taking a Python lock: in a futex, on a line that takes one, outside of any condition.

    Without the source text this cannot be told, and is not claimed, but for the locks of imports and of logging,
    which functions of their own take.
    """
    if isinstance(thread.stack, Gap) or not thread.stack or _kind(thread)[0] is not Kind.FUTEX:
        return False
    leaf = thread.stack[0]
    if _TAKES.search(leaf.function) and _TAKEN_BY_NAME.search(leaf.file):
        return True
    return bool(_ACQUIRES.search(leaf.code)) and not _NO_LOCK.search(leaf.function)


_SLEEPING_LINE = re.compile(r"\bsleep\(")
_LOCK_WORDS = re.compile(r"baton|(?<![a-z])(file_?)?lock", re.IGNORECASE)


def polls_lock_file(thread: ThreadLook) -> bool:
    """Whether a thread sleeps between two looks at a lock file, as torch's FileBaton does.

    One that polls is seen on a CPU now and then, in the middle of the line that sleeps.
    """
    if isinstance(thread.stack, Gap) or not thread.stack:
        return False
    if _kind(thread)[0] is not Kind.SLEEPS and not _SLEEPING_LINE.search(thread.stack[0].code):
        return False
    return any(
        _LOCK_WORDS.search(f"{frame.function} {'/'.join(frame.file.split('/')[-2:])} {frame.code}")
        for frame in thread.stack[:3]
    )
