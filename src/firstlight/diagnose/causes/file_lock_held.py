"""A process waits for a flock or record lock that, says the kernel, another one holds."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose import quotes
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import unseen_waits


def _held(scene: Scene) -> Iterator[Sighting | Gap]:
    for one in scene.standings:
        lock = one.wait.lock
        if lock is None or lock.holder in {0, one.pid}:
            continue
        table = f"/proc/locks: {lock.kind} lock on {lock.path}, held by {lock.holder}, wanted by {one.pid}"
        yield Sighting(quotes.shortened(table), (one.pid, lock.holder), lock.path)
        yield Sighting(quotes.stack(one), (one.pid,))
    look = scene.last
    if look and isinstance(look.locks, Gap):
        yield look.locks
    yield from unseen_waits(scene)


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    waiter, holder = seen[0].pids[:2]
    return f"{scene.name(waiter)} waits for the lock on {{what}}, held by {scene.name(holder)}"


def _advice(_scene: Scene, seen: tuple[Sighting, ...]) -> Advice:
    holder = seen[0].pids[1]
    return Advice(
        steps=(f"See what pid {holder} does; end it if an earlier run left it behind.",),
    )


CAUSE = Cause(
    id="file_lock_held",
    nature=Nature.HELD,
    title=_title,
    clues=(decides("Does a process wait for a file lock that another holds?", _held),),
    advice=_advice,
    traps=("A holder that downloads or builds lets go when it is done: see whether it moves.",),
    each=True,
    evident=True,
)
