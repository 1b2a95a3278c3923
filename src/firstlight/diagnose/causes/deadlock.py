"""Threads or processes wait for each other in a circle, or take locks in opposite order."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import ThreadLook
from firstlight.diagnose import frames, quotes, waits, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.compare import IDLE_CPU
from firstlight.diagnose.graph import circles, circles_of_locks, label
from firstlight.diagnose.links import End, Link
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import unseen_stacks, unseen_waits

QUOTED = 6
STILL_CPU_S = 0.02


def _of_locks(scene: Scene) -> Iterator[Sighting | Gap]:
    """Each thread of a circle waits for a lock whose own memory names the next one as its owner, and none of them
    went anywhere between two looks. A single look could have caught them one after another on their way."""
    for circle in circles_of_locks(scene):
        if all(_stood_still(scene, link) for link in circle):
            yield from _quoted(scene, circle)
    yield from unseen_waits(scene)


def _of_anything(scene: Scene) -> Iterator[Sighting | Gap]:
    for circle in circles(scene):
        yield from _quoted(scene, circle)
    yield from unseen_waits(scene)


def _quoted(scene: Scene, circle: tuple[Link, ...]) -> Iterator[Sighting]:
    pids = tuple(dict.fromkeys(link.source.pid for link in circle if link.source.pid))
    named = _thread_label if len(pids) == 1 else label
    for link in circle[:QUOTED]:
        source, target = named(scene, link.source), named(scene, link.target)
        words = f"{source} waits for {target}: {link.label}"
        yield Sighting(quotes.shortened(words), pids, link.source.id)


def _thread_label(scene: Scene, place: End) -> str:
    """A thread by its number alone, where all are of one process."""
    thread = _thread_of(scene, -1, place.pid, place.tid or _telling(scene, place.pid))
    return quotes.thread(thread).removesuffix(": ") if thread else label(scene, place)


def _telling(scene: Scene, pid: int) -> int:
    """The thread that a process stands for."""
    standing = scene.standing(pid)
    return standing.thread.tid if standing and standing.thread else 0


def _stood_still(scene: Scene, link: Link) -> bool:
    """Whether a thread sat in the same system call at both looks and computed nothing between them. One that takes
    the interpreter lock asks for it all the time, which costs next to nothing."""
    place = link.source
    if len(scene.bundle.looks) < 2:
        return False
    tid = place.tid or _telling(scene, place.pid)
    before, after = (_thread_of(scene, at, place.pid, tid) for at in (0, -1))
    if before is None or after is None:
        return False
    if link.kind == "gil":
        return after.cpu_s - before.cpu_s <= IDLE_CPU * where.seconds_between(scene)
    if before.state == "R" or after.state == "R":
        return False
    return before.syscall == after.syscall and after.cpu_s - before.cpu_s <= STILL_CPU_S


def _thread_of(scene: Scene, at: int, pid: int, tid: int) -> ThreadLook | None:
    found = (one for one in scene.bundle.looks[at].processes if one.process.id.pid == pid)
    return next((thread for one in found for thread in one.threads if thread.tid == tid), None)


def _opposite(scene: Scene) -> Iterator[Sighting | Gap]:
    """Two or more threads of one process, each stuck taking another Python lock. Python keeps no record of who holds
    one, so the stacks speak for it, and prove it only together with the program's text."""
    for one in scene.standings:
        taking = [thread for thread in one.look.threads if waits.acquires_lock(thread)]
        if len({_futex(thread) for thread in taking}) < 2:
            continue
        yield from (Sighting(_stack(thread), (one.pid,), f"t{thread.tid}") for thread in taking[:QUOTED])
    yield from unseen_stacks(scene)


def _own_file_lock(scene: Scene) -> Iterator[Sighting | Gap]:
    """A thread polls a file that its own process has locked: flock is the lock of an open file and not of a process,
    and the process has the file open a second time."""
    look = scene.last
    locks = look.locks if look else ()
    if isinstance(locks, Gap):
        yield locks
        return
    for one in scene.standings:
        polls = [thread for thread in one.look.threads if waits.polls_lock_file(thread)]
        opened = [file.target for file in one.look.files if file.kind == "file"]
        for lock in locks if polls else ():
            if lock.kind in {"flock", "ofd"} and lock.holder == one.pid and opened.count(lock.path) > 1:
                yield Sighting(quotes.shortened(f"{scene.name(one.pid)} holds {lock.path}, open twice"), (one.pid,))
                yield from (Sighting(_stack(thread), (one.pid,), f"t{thread.tid}") for thread in polls[:1])


def _futex(thread: ThreadLook) -> str:
    return quotes.call(thread).partition(",")[0]


def _stack(thread: ThreadLook) -> str:
    stack = () if isinstance(thread.stack, Gap) else frames.telling(thread.stack)
    return quotes.chain(quotes.thread(thread), stack[:4])


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    pids = tuple(dict.fromkeys(pid for one in seen for pid in one.pids))
    if len(pids) > 1:
        return f"{scene.names.all(pids)} wait for each other"
    count = len({one.what for one in seen if one.pids == seen[0].pids})
    if count <= 1 or not all(one.what for one in seen if one.pids == seen[0].pids):
        return "a thread of {who} waits for a lock that it holds itself"
    return f"{count} threads of {{who}} wait for each other's locks"


_PIPES = frozenset({"pipe", "fifo", "socket", "child"})
_ORDER = "Take the locks in the same order in every thread, or take them with a timeout."
_READ = "Read the pipe while its writer runs, as subprocess's communicate() does, before waiting or writing more."


def _advice(scene: Scene, seen: tuple[Sighting, ...]) -> Advice:
    """Where nothing but pipes, and children to end, is waited for in the circle, there is no lock to take."""
    pids = {pid for one in seen for pid in one.pids}
    kinds = {link.kind for circle in circles(scene) for link in circle if link.source.pid in pids}
    return Advice(steps=(_READ if kinds and kinds <= _PIPES else _ORDER,))


CAUSE = Cause(
    id="deadlock",
    nature=Nature.HELD,
    together=True,
    title=_title,
    clues=(
        decides("Do locks name threads that wait for each other in a circle, unmoved?", _of_locks),
        supports("Do threads or processes wait for each other in a circle?", _of_anything),
        supports("Does a thread poll a file that its own process has locked?", _own_file_lock),
        supports("Do threads of one process each take another Python lock?", _opposite),
    ),
    advice=_advice,
    traps=("Threads that queue for one lock are no deadlock: see what its holder does.",),
    each=True,
)
