"""Who waits for whom: every edge that a bundle's facts give, of whatever kind. Pure.

The process stands for its most telling thread; other threads get a place of their own where a lock lies between them.
An edge is *firm* if whoever waits cannot go on before the other end does something: a poll of many descriptors is
not, since any of them would do, and neither is the wait of one thread among several that could do what is awaited.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.look import Lock, OpenFile, ThreadLook
from firstlight.core.vocabulary import Role
from firstlight.core.words import printable
from firstlight.diagnose import frames, waits
from firstlight.diagnose.meetings import meetings
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing, last_look
from firstlight.diagnose.waits import Kind
from firstlight.diagnose.whose import machine

ENDS_MAX = 32
"""Other ends that one wait is drawn to."""
_TAKES_GIL = re.compile(
    r"take_gil|PyEval_(RestoreThread|AcquireThread|AcquireLock)|PyGILState_Ensure|_?PyThreadState_Attach"
)
_INNERMOST = 8
_NAME_MAX = 240
_JOIN = re.compile(r"(^|\.)(join|_wait_for_tstate_lock)$")
_WAITS_ON_ENDS = {Kind.READ, Kind.WRITE, Kind.POLL, Kind.OPEN, Kind.CONNECT}
_OF_A_MACHINE = {"lock", "file", "device"}
_SHARED = {"pipe", "socket", "fifo"}


class End(NamedTuple):
    """A node in the making. `kind` as in `core.graph.Node`."""

    id: str
    kind: str
    label: str = ""
    pid: int = 0
    tid: int = 0


def thing(kind: str, name: str, label: str = "") -> End:
    """A node that is no process: a lock, a file, a device, a meeting."""
    return End(printable(f"{kind}:{name}", _NAME_MAX), kind, label or name)


class Link(NamedTuple):
    """`source` waits for `target`; `kind` and `label` as in `core.graph.Edge`."""

    source: End
    target: End
    kind: str
    label: str = ""
    firm: bool = True


@lru_cache(maxsize=1)
def links(scene: Scene) -> tuple[Link, ...]:
    """Every edge of a scene, each once."""
    own = (_whose(link, place) for place in scene.machines for find in _ON_ONE_MACHINE for link in find(place))
    return tuple(dict.fromkeys((*own, *_meetings(scene))))


def _whose(link: Link, place: Scene) -> Link:
    """A link with the machine's name at what each machine has for itself: a lock, a file, a device."""
    name = machine(place)
    return link._replace(source=_named(link.source, name), target=_named(link.target, name)) if name else link


def _named(end: End, name: str) -> End:
    if end.kind not in _OF_A_MACHINE:
        return end
    return End(printable(f"{name}:{end.id}", _NAME_MAX), end.kind, f"{end.label} on {name}")


def process(pid: int) -> End:
    """The node of a process."""
    return End(f"p{pid}", "process", pid=pid)


def thread(one: Standing, tid: int) -> End:
    """The node of a thread; that of its process if it is the one that the process stands for."""
    if one.thread is not None and one.thread.tid == tid:
        return process(one.pid)
    return End(f"p{one.pid}t{tid}", "thread", pid=one.pid, tid=tid)


def _mutexes(scene: Scene) -> Iterator[Link]:
    """A glibc mutex knows the thread that holds it."""
    homes = {thread.tid: one for one in scene.standings for thread in one.look.threads}
    for one in scene.standings:
        for waiting in one.look.threads:
            futex = waiting.futex
            if futex is None or not futex.owner or waiting.state == "R":
                continue
            home = homes.get(futex.owner)
            if home is one or (home is not None and futex.shared):
                label = f"mutex at {futex.address:#x}"
                yield Link(thread(one, waiting.tid), thread(home, futex.owner), "mutex", label)


def _interpreter_locks(scene: Scene) -> Iterator[Link]:
    """Threads that take the interpreter lock, which only native frames tell, and the one that has it."""
    for one in scene.standings:
        holders = [other for other in one.look.threads if other.owns_gil]
        if len(holders) != 1:
            continue
        for waiting in one.look.threads:
            if waiting.tid != holders[0].tid and takes_gil(waiting):
                yield Link(thread(one, waiting.tid), thread(one, holders[0].tid), "gil", "the interpreter lock (GIL)")


def takes_gil(one: ThreadLook) -> bool:
    """Whether a thread is in CPython's code that takes the interpreter lock. It wakes up every five milliseconds to
    ask for it again, so it may be on a CPU."""
    if isinstance(one.native, Gap):
        return False
    return any(_TAKES_GIL.search(frame.function) for frame in one.native[:_INNERMOST])


def _file_locks(scene: Scene) -> Iterator[Link]:
    look = last_look(scene.bundle)
    locks = look.locks if look and isinstance(look.locks, tuple) else ()
    for lock in locks:
        if lock.kind == "file":
            continue
        target = process(lock.holder) if lock.holder else _lock(lock)
        for one in filter(None, map(scene.standing, lock.waiters)):
            if one.pid != lock.holder:
                yield Link(process(one.pid), target, "file_lock", f"{lock.kind} lock on {lock.path}", one.single)


def _lock_files(scene: Scene) -> Iterator[Link]:
    """Whoever polls a bare lock file waits for those who build beside it, or for nobody at all."""
    polling = {one.pid for one in scene.standings if one.thread and waits.polls_lock_file(one.thread)}
    seen = {one.pid for one in scene.standings}
    for lock in scene.bare_locks[:ENDS_MAX]:
        waiters = set(lock.waiters) & seen or polling
        for pid in sorted(waiters):
            yield Link(process(pid), _lock(lock), "lock_file", lock.path, firm=len(scene.bare_locks) == 1)
        if waiters:
            for pid in dict.fromkeys([*([lock.holder] if lock.holder else []), *lock.builders]):
                yield Link(_lock(lock), process(pid), "lock_file", "works in its folder")


def _lock(lock: Lock) -> End:
    what = "lock file" if lock.kind == "file" else f"{lock.kind} lock on"
    return thing("lock", lock.path, f"{what} {lock.path}")


def _other_ends(scene: Scene) -> Iterator[Link]:
    """Pipes, FIFOs and sockets, and whoever has their other ends."""
    for one in scene.standings:
        if one.stopped or one.wait.kind not in _WAITS_ON_ENDS or _only_listens(one):
            continue
        shared = [file for file in one.wait.files if file.kind in _SHARED]
        firm = len(one.wait.files) == 1 and one.wait.kind is not Kind.POLL and one.single
        for file in shared[:ENDS_MAX]:
            label = f"{_verb(one.wait.kind)} {file.target}"
            ends = list(_ends(file, one.pid))
            for end in ends[:ENDS_MAX]:
                yield Link(process(one.pid), end, file.kind, label, firm and len(ends) == 1)


def _only_listens(one: Standing) -> bool:
    """A resource tracker reads from everybody, all its life."""
    return one.look.process.role is Role.HELPER and one.wait.kind in {Kind.READ, Kind.POLL}


def _verb(kind: Kind) -> str:
    return {Kind.READ: "reads", Kind.WRITE: "writes to", Kind.OPEN: "opens", Kind.CONNECT: "connects"}.get(
        kind, "polls"
    )


def _ends(file: OpenFile, pid: int) -> Iterator[End]:
    peers = () if isinstance(file.peers, Gap) else tuple(dict.fromkeys(file.peers))
    others = [peer for peer in peers if peer != pid]
    if others:
        yield from map(process, others)
    elif file.socket and file.socket.peer_port and not _is_local(file.socket.peer_host):
        address = f"{file.socket.peer_host} port {file.socket.peer_port}"
        yield thing("peer", address)
    elif file.kind != "socket" and not file.unseen and not isinstance(file.peers, Gap):
        yield thing("file", file.target, f"{file.target}, whose other end nobody else has")


def _is_local(host: str) -> bool:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return True
    return address.is_loopback or address.is_unspecified


def _children(scene: Scene) -> Iterator[Link]:
    born = defaultdict(list)
    for one in scene.standings:
        born[one.look.process.ppid].append(one.pid)
    for one in scene.standings:
        if one.wait.kind is not Kind.CHILD or one.stopped:
            continue
        awaited = one.wait.pids or tuple(pid for pid in born[one.pid] if pid != one.pid)[:ENDS_MAX]
        for pid in awaited:
            if pid != one.pid:
                firm = len(awaited) == 1 and one.single
                yield Link(process(one.pid), process(pid), "child", "waits for it to end", firm)


def _joins(scene: Scene) -> Iterator[Link]:
    """A thread that joins another, where there is only one other that runs Python."""
    for one in scene.standings:
        python = [other for other in one.look.threads if not isinstance(other.stack, Gap) and other.stack]
        for waiting in python:
            others = [other for other in python if other is not waiting]
            if len(others) == 1 and len(python) == len(one.look.threads) and _joining(waiting):
                yield Link(thread(one, waiting.tid), thread(one, others[0].tid), "thread", "joins it")


def _joining(one: ThreadLook) -> bool:
    here = None if isinstance(one.stack, Gap) else frames.place(one.stack)
    operation = here and (here.operation or here.leaf)
    return bool(operation and frames.basename(operation) == "threading.py" and _JOIN.search(operation.function))


def _semaphores(scene: Scene) -> Iterator[Link]:
    look = last_look(scene.bundle)
    for one in look.semaphores if look and isinstance(look.semaphores, tuple) else ():
        if one.value > 0:
            continue
        place = thing("lock", one.path, f"semaphore {one.path}")
        for pid in one.waiting[:ENDS_MAX]:
            yield Link(process(pid), place, "semaphore", one.path)
        others = [pid for pid in one.mapped_by if pid not in one.waiting]
        if one.waiting and len(others) == 1:
            yield Link(place, process(others[0]), "semaphore", "the only other that has it", firm=False)


def _queues(scene: Scene) -> Iterator[Link]:
    """Queues in shared memory; which of several ends is awaited first cannot be seen."""
    for pid, others in scene.queued.items():
        for other in others:
            yield Link(process(pid), process(other), "queue", "a queue in shared memory", firm=False)


def _meetings(scene: Scene) -> Iterator[Link]:
    """Ranks that wait where ranks meet, and those that are not there."""
    for meeting in meetings(scene):
        place = thing("collective", meeting.name)
        for pid in meeting.present:
            yield Link(process(pid), place, "collective", meeting.name)
        for pid in meeting.missing:
            yield Link(place, process(pid), "collective", "is not there")


def _devices(scene: Scene) -> Iterator[Link]:
    for one in scene.standings:
        if one.thread is None or one.stopped or not (one.thread.state == "D" or one.wait.kind is Kind.STORAGE):
            continue
        what = next((file.target for file in one.wait.files), one.thread.path)
        kernel = one.thread.wchan if isinstance(one.thread.wchan, str) else ""
        label = " in ".join(filter(None, [what or "storage or a device", kernel]))
        yield Link(process(one.pid), thing("device", label), "device", kernel or one.wait.call)


def _debuggers(scene: Scene) -> Iterator[Link]:
    for one in scene.standings:
        if one.state == "t" and one.look.tracer not in {0, one.pid}:
            yield Link(process(one.pid), process(one.look.tracer), "stopped", "is held by its debugger")


_ON_ONE_MACHINE = (
    _mutexes,
    _interpreter_locks,
    _file_locks,
    _lock_files,
    _other_ends,
    _children,
    _joins,
    _semaphores,
    _queues,
    _devices,
    _debuggers,
)
