"""A process waits for a flock or record lock that, says the kernel, another one holds."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose import quotes, storage
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import unseen_waits
from firstlight.diagnose.waits import Kind


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


def _across(scene: Scene) -> Iterator[Sighting]:
    """A process waits for the lock of a file on a network file system, whose holder no table of this machine names:
    it is on another one, or the server keeps the lock of somebody who is gone."""
    for one in scene.standings:
        if one.wait.kind is Kind.FILE_LOCK and one.wait.lock is None:
            for file in one.wait.files:
                if storage.is_slow(file.filesystem):
                    quote = f"{scene.name(one.pid)} waits for the lock on {file.target} ({file.filesystem})"
                    yield Sighting(
                        quotes.shortened(f"{quote}, which nobody here is known to hold"), (one.pid,), file.target
                    )
                    yield Sighting(quotes.stack(one), (one.pid,))


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if len(seen[0].pids) < 2:
        return "{who} waits for the lock on {what}, whose holder is not on this machine"
    waiter, holder = seen[0].pids[:2]
    return f"{scene.name(waiter)} waits for the lock on {{what}}, held by {scene.name(holder)}"


def _advice(_scene: Scene, seen: tuple[Sighting, ...]) -> Advice:
    if len(seen[0].pids) < 2:
        return Advice(
            steps=("See who has the file open on other machines; the lock of one that crashed may outlast it.",),
            work_around=("Keep locks and caches on a local disk.",),
        )
    holder = seen[0].pids[1]
    return Advice(
        steps=(f"See what pid {holder} does; end it if an earlier run left it behind.",),
    )


CAUSE = Cause(
    id="file_lock_held",
    nature=Nature.HELD,
    title=_title,
    clues=(
        decides("Does a process wait for a file lock that another holds?", _held),
        supports("Does a process wait for a lock on a network file system that nobody here holds?", _across),
    ),
    advice=_advice,
    traps=("A holder that downloads or builds lets go when it is done: see whether it moves.",),
    each=True,
    evident=True,
)
