"""A lock file that processes poll although nobody works in its folder: whoever made it died without removing it.

torch's FileBaton and its kin are bare files made with O_EXCL; no table of the kernel tells who made them.
"""

import shlex
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Lock
from firstlight.core.vocabulary import Role
from firstlight.core.words import printable
from firstlight.diagnose import clauses, quotes, waits
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, speaks_against, supports
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import last, unseen_stacks
from firstlight.diagnose.standing import Standing

QUOTED = 3


def _surely(scene: Scene) -> Iterator[Sighting | Gap]:
    """The only lock file is left alone, somebody sits in a FileBaton, and nobody compiles."""
    polling = _polling(scene)
    if len(_left(scene)) == 1 and any(map(_is_in_file_baton, polling)) and not any(_compilers(scene)):
        yield from _seen(scene, polling)
    yield from _unseen(scene)


def _probably(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from _seen(scene, _polling(scene))
    yield from _unseen(scene)


def _compilers(scene: Scene) -> Iterator[Sighting]:
    """A compiler works somewhere: it may be what the lock is for."""
    for one in scene.standings:
        if one.look.process.role is Role.COMPILER and one.state not in "ZX":
            yield Sighting(f"{scene.name(one.pid)} is at work", (one.pid,))


def _seen(scene: Scene, polling: list[Standing]) -> Iterator[Sighting]:
    left = _left(scene)
    if left and polling:
        pids = tuple(one.pid for one in polling)
        yield Sighting(quotes.shortened(clauses.listed_locks(left)), pids, left[0].path)
        yield from (Sighting(quotes.stack(one), (one.pid,)) for one in polling[:QUOTED])


def _left(scene: Scene) -> tuple[Lock, ...]:
    return tuple(lock for lock in scene.bare_locks if not lock.holder and not lock.builders)


def _polling(scene: Scene) -> list[Standing]:
    return [one for one in scene.standings if one.thread and waits.polls_lock_file(one.thread)]


def _is_in_file_baton(one: Standing) -> bool:
    return any("baton" in f"{frame.file} {frame.function}".lower() for frame in one.stack)


def _unseen(scene: Scene) -> Iterator[Gap]:
    look = last(scene)
    if look and isinstance(look.locks, Gap):
        yield look.locks
    yield from unseen_stacks(scene)


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    pids = tuple(dict.fromkeys(pid for one in seen for pid in one.pids))
    verb = "waits" if len(pids) == 1 else "wait"
    return f"{scene.names.all(pids)} {verb} for the lock file {{what}}, left behind by a process that is gone"


def _advice(_scene: Scene, seen: tuple[Sighting, ...]) -> Advice:
    path = next((one.what for one in seen if one.what), "")
    return Advice(repair=(f"Make sure that no build is running, then: rm {shlex.quote(printable(path, 300))}",))


CAUSE = Cause(
    id="stale_jit_lock",
    nature=Nature.HELD,
    title=_title,
    clues=(
        decides("Does a process sit in a FileBaton on a lock file in whose folder nobody works?", _surely),
        supports("Does a process poll a lock file in whose folder nobody works?", _probably),
        speaks_against("Is a compiler at work?", _compilers),
    ),
    advice=_advice,
    traps=("A folder shared with another machine: the builder may work there, unseen from here.",),
)
