"""Threads or processes wait for each other in a circle, or take locks in opposite order."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import ThreadLook
from firstlight.diagnose import frames, quotes, waits
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import unseen_stacks

QUOTED = 6


def _opposite(scene: Scene) -> Iterator[Sighting | Gap]:
    """Two or more threads of one process, each stuck taking another Python lock. Python keeps no record of who holds
    one, so the stacks speak for it, and prove it only together with the program's text."""
    for one in scene.standings:
        taking = [thread for thread in one.look.threads if waits.acquires_lock(thread)]
        if len({_futex(thread) for thread in taking}) < 2:
            continue
        yield from (Sighting(_thread(thread), (one.pid,), str(thread.tid)) for thread in taking[:QUOTED])
    yield from unseen_stacks(scene)


def _futex(thread: ThreadLook) -> str:
    return quotes.call(thread).partition(",")[0]


def _thread(thread: ThreadLook) -> str:
    stack = () if isinstance(thread.stack, Gap) else frames.telling(thread.stack)
    return quotes.chain(quotes.thread(thread), stack[:4])


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    pids = tuple(dict.fromkeys(pid for one in seen for pid in one.pids))
    return f"{len(seen)} threads of {scene.names.all(pids)} wait for each other's locks"


CAUSE = Cause(
    id="deadlock",
    nature=Nature.HELD,
    title=_title,
    clues=(supports("Do threads of one process each take another Python lock?", _opposite),),
    advice=Advice(repair=("Take the locks in the same order in every thread, or take them with a timeout.",)),
    traps=("Threads that queue for one lock are no deadlock: see what its holder does.",),
    each=True,
)
