"""What a process does, in one plain clause. Pure."""

import re

from firstlight.core.gap import Gap
from firstlight.core.look import Lock, OpenFile
from firstlight.core.words import printable, seconds
from firstlight.diagnose import frames, waits
from firstlight.diagnose.names import Names
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.waits import Kind

_OPERATIONS: tuple[tuple[str, str], ...] = (
    (r"barrier", "waits in a barrier"),
    (r"join|_wait_for_tstate_lock", "waits for a thread to end"),
    (r"get", "waits for an item of a queue"),
    (r"put", "waits for room in a queue"),
    (r"wait|wait_for", "waits for an event"),
    (r"result", "waits for a future"),
)
_STREAMS = ("its standard input", "its standard output", "its standard error")
_TOLD_FROM_S = 12.0
"""A shorter sleep is one of a loop that polls: its end tells nothing, and would tell ranks apart that poll alike."""
_PLAIN = {
    Kind.RUNS: "computes",
    Kind.ACCEPT: "waits for a connection",
    Kind.STORAGE: "waits for storage or a device in the kernel ({})",
    Kind.UNKNOWN: "waits, where in the kernel may not be seen",
}


def doing(standing: Standing, names: Names, bare_locks: tuple[Lock, ...]) -> str:
    """The clause for a process: "waits in recv on a pipe held open by worker rank 1 (pid 12)"."""
    stopped = _by_state(standing)
    if stopped:
        return stopped
    if standing.thread is None:
        return "shows nothing of what it does"
    holds = "holds the interpreter lock (GIL) and " if standing.thread.owns_gil and not standing.thread.active else ""
    return holds + _waiting(standing, names, bare_locks)


def _by_state(standing: Standing) -> str:
    look = standing.look
    if standing.state == "T":
        return f"is stopped by a signal (state T); kill -CONT {standing.pid} (SIGCONT) lets it go on"
    if standing.state == "t":
        return f"is held by a debugger, pid {look.tracer}" if look.tracer else "is held by a debugger"
    if standing.frozen:
        return "is frozen with its control group"
    if standing.state in "ZX":
        return "has ended, and its parent has not collected it (zombie)"
    return ""


def _waiting(standing: Standing, names: Names, bare_locks: tuple[Lock, ...]) -> str:
    if standing.change and standing.spins:
        what = f"computes or spins in one place, at {standing.change.cpu:.0%} of a core"
    else:
        what = _what(standing, names, bare_locks)
    inside = _inside(standing)
    return f"{what}{',' if inside and ' ' in what else ''}{inside}"


def _what(standing: Standing, names: Names, bare_locks: tuple[Lock, ...]) -> str:
    wait = standing.wait
    if wait.kind is Kind.SLEEPS or (wait.kind is Kind.POLL and _waits_for_nothing(standing)):
        return _sleeping(standing, bare_locks)
    if wait.kind is Kind.CHILD:
        return f"waits for {names.all(wait.pids)} to end" if wait.pids else "waits for a child to end"
    say = _SAID.get(wait.kind)
    return say(standing, names) if say else _PLAIN.get(wait.kind, "waits in {}").format(wait.call)


def _inside(standing: Standing) -> str:
    """ " in wait (synchronize.py:3), called from load (weights.py:88)"."""
    place = standing.place
    if place is None:
        return ""
    called_from = f", called from {frames.shown(place.caller)}" if place.operation and place.caller else ""
    return f" in {frames.shown(place.operation or place.caller or place.leaf)}{called_from}"


def _sleeping(standing: Standing, bare_locks: tuple[Lock, ...]) -> str:
    if standing.thread and waits.polls_lock_file(standing.thread) and bare_locks:
        return f"polls {listed_locks(bare_locks)}"
    limit = standing.thread.limit if standing.thread else None
    if limit is None or limit.seconds < _TOLD_FROM_S:
        return "sleeps"
    return f"sleeps for {'another' if limit.exact else 'up to'} {seconds(limit.seconds)}"


def _waits_for_nothing(standing: Standing) -> bool:
    """Whether only time ends a select, poll or epoll: it has a limit and no descriptor."""
    thread = standing.thread
    return thread is not None and thread.limit is not None and not thread.fds


def listed_locks(locks: tuple[Lock, ...]) -> str:
    """Bare lock files with their age and whether anybody builds beside them."""
    lock = locks[0]
    works = f"{lock.holder_name or 'a process'} (pid {lock.holder}) works" if lock.holder else "nobody works"
    more = f", and {len(locks) - 1} more" if len(locks) > 1 else ""
    return f"the lock file {lock.path} ({lock.age_s:.0f} s old, {works} in its folder{more})"


def _futex(standing: Standing, _names: Names) -> str:
    if standing.thread and waits.acquires_lock(standing.thread):
        return "waits for a lock"
    if standing.thread and standing.thread.futex and standing.thread.futex.owner:
        return f"waits for a mutex that {_thread(standing, standing.thread.futex.owner)} holds"
    operation = standing.place.operation if standing.place else None
    word = operation.function.rpartition(".")[2] if operation else ""
    said = (clause for pattern, clause in _OPERATIONS if re.fullmatch(pattern, word))
    return next(said, "waits for a futex (a lock or another thread)")


def _thread(standing: Standing, tid: int) -> str:
    if standing.thread and standing.thread.tid == tid:
        return "the thread itself"
    name = next((one.name for one in standing.look.threads if one.tid == tid), "")
    return f"thread {tid}{f' ({printable(name, 40)})' if name else ''}"


def _transfer(standing: Standing, names: Names) -> str:
    wait = standing.wait
    verb = {Kind.READ: "waits to read from", Kind.WRITE: "waits to write to"}.get(wait.kind, "waits for")
    if not wait.files:
        fds = standing.thread.fds if standing.thread else ()
        if len(fds) == 1 and 0 <= fds[0] < len(_STREAMS):
            return f"{verb} {_STREAMS[fds[0]]}"
        what = "events" if wait.kind is Kind.POLL else "a descriptor that could not be seen"
        return f"{verb} {what} ({wait.call})"
    if len(wait.files) == 1:
        return f"{verb} {_file(wait.files[0], standing.pid, names)}"
    whom = f" of {names.all(wait.pids)}" if wait.pids else ""
    return f"{verb} any of {len(wait.files)} descriptors{whom}"


def _file(file: OpenFile, pid: int, names: Names) -> str:
    """One descriptor in words; the three that every process is born with by their part as well."""
    what = "a terminal" if _TERMINAL.match(file.target) else _other_end(file, pid, names)
    return f"{_STREAMS[file.fd]} ({what})" if 0 <= file.fd < len(_STREAMS) else what


_TERMINAL = re.compile(r"/dev/(pts/\d|tty|console)")


def _other_end(file: OpenFile, pid: int, names: Names) -> str:
    what = {"pipe": "a pipe", "socket": "a socket", "fifo": f"FIFO {file.target}"}.get(file.kind, file.target)
    if file.kind == "socket" and file.detail.startswith("TCP"):
        what = f"a socket ({file.detail})"
    if isinstance(file.peers, Gap) or file.kind not in {"pipe", "fifo", "socket"}:
        return what
    others = [peer for peer in file.peers if peer != pid]
    if others:
        return f"{what} whose other end is held by {names.all(others)}"
    if pid in file.peers:
        return f"{what} whose other end only it itself holds open"
    return f"{what} whose other end nobody{' that could be seen' if file.unseen else ''} holds open"


def _opening(standing: Standing, _names: Names) -> str:
    for file in standing.wait.files:
        if file.kind == "fifo":
            return f"waits in open() of FIFO {file.target}, whose other end nobody opens"
    path = standing.thread.path if standing.thread else ""
    return f"waits in open() of {path or 'a file'}"


def _file_lock(standing: Standing, names: Names) -> str:
    lock = standing.wait.lock
    if lock is None:
        return "waits for a file lock"
    holder = f"held by {names.of(lock.holder)}" if lock.holder else "whose holder is not known"
    return f"waits for the {lock.kind} lock on {lock.path}, {holder}"


def _connecting(standing: Standing, _names: Names) -> str:
    files = standing.wait.files
    return f"connects, {files[0].detail}" if files and files[0].detail else "connects"


_SAID = {
    Kind.FUTEX: _futex,
    Kind.READ: _transfer,
    Kind.WRITE: _transfer,
    Kind.POLL: _transfer,
    Kind.OPEN: _opening,
    Kind.FILE_LOCK: _file_lock,
    Kind.CONNECT: _connecting,
}
