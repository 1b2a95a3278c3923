"""A build lock that processes wait for although nobody builds: left behind, held idly, or lost on a network disk.

torch's FileBaton and its kin are bare files made with O_EXCL; no table of the kernel tells who made them. filelock
(FlashInfer, SGLang, vLLM) asks for a flock again and again: the kernel tells who holds it, but not that it is wanted.
"""

import re
import shlex
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Lock
from firstlight.core.vocabulary import Phase, Role
from firstlight.core.words import printable
from firstlight.diagnose import building, clauses, quotes, storage
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, speaks_against, supports
from firstlight.diagnose.devices import is_hidden, runners, still
from firstlight.diagnose.filelocks import DOWNLOAD, Polled, for_the_hub, held_locks, in_filelock, polled, polling
from firstlight.diagnose.ranks import meets_others
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import lines, unseen_stacks
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.waits import Kind

QUOTED = 3
_WAITS = re.compile(
    r"(waiting for baton release|another process must be compiling|waiting for the (build|compile|jit) lock)"
    r"(.*?(?P<path>/\S+))?",
    re.IGNORECASE,
)
"""aiter's words and those of Neuron's compile cache, among others."""


def _surely(scene: Scene) -> Iterator[Sighting | Gap]:
    """The only lock file is left alone on a local disk, somebody sits in a FileBaton, nobody compiles, and whoever
    made it is gone: it is older than this start, or somebody ended since."""
    waiting, left = polling(scene), _left(scene)
    alone = len(left) == 1 and not storage.is_slow(left[0].filesystem) and not any(_compilers(scene))
    if alone and any(map(_is_in_file_baton, waiting)) and (_is_old(scene, left[0]) or scene.ended):
        yield from _seen(scene, waiting)
    yield from _unseen(scene)


def _probably(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from _seen(scene, polling(scene))
    yield from _unseen(scene)


def _is_old(scene: Scene, lock: Lock) -> bool:
    return lock.age_s >= scene.bundle.at - scene.bundle.started or not scene.bundle.started


def _all_poll(scene: Scene) -> Iterator[Sighting]:
    """Lock files could not be seen; whoever runs the model sits in a FileBaton, or waits for those who do where ranks
    meet, and nobody of the server builds."""
    look, those = scene.last, runners(scene)
    if look is None or not isinstance(look.locks, Gap) or not those or any(_building(scene)):
        return
    polling_ = [one for one in those if _is_in_file_baton(one)]
    if polling_ and all(one in polling_ or meets_others(one) for one in those):
        yield from (Sighting(quotes.stack(one), (one.pid,)) for one in polling_)


def _naps_unseen(scene: Scene) -> Iterator[Sighting]:
    """Where no stack may be taken: whoever runs the model sleeps, as between two tries of a lock, nobody moves or
    builds, and a build lock is left from before or held by one of them."""
    napping = [one for one in runners(scene) if is_hidden(scene, one) and one.wait.kind is Kind.SLEEPS]
    if not napping or scene.bundle.phase is Phase.SERVING or not still(scene) or any(_building(scene)):
        return
    left = [lock for lock in _left(scene) if _is_old(scene, lock)]
    own = {one.pid for one in scene.standings if not one.moves and not one.spins}
    held = [lock for lock in held_locks(scene) if lock.holder in own and not DOWNLOAD.search(lock.path)]
    for lock in (*left, *held)[:QUOTED]:
        pids = tuple(one.pid for one in napping if one.pid != lock.holder)
        if pids:
            yield Sighting(
                quotes.shortened(clauses.listed_locks((lock,))),
                (*((lock.holder,) if lock.holder else ()), *pids),
                lock.path,
            )
            yield Sighting(f"{scene.names.all(pids)} sleeps, and its stack could not be seen", pids)


def _told(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log tells that a build lock is waited for; nobody of the server builds, or moves at all."""
    if still(scene) and not any(_building(scene)):
        for line in lines(scene.bundle):
            if found := _WAITS.search(line.message):
                yield Sighting(quotes.shortened(f"log: {line.message}"), what=found["path"] or "of a build")


def _polled(scene: Scene) -> Iterator[Polled]:
    """Build locks that are polled; downloads have their own cause."""
    return (one for one in polled(scene) if not DOWNLOAD.search(one.path))


def _held_idly(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process polls a lock that the kernel says another holds, and that one neither computes nor has it built."""
    yield from _idly(scene, sure=True)


def _perhaps_idly(scene: Scene) -> Iterator[Sighting | Gap]:
    """As above, and it may be another lock of several."""
    yield from _idly(scene, sure=False)


def _idly(scene: Scene, *, sure: bool) -> Iterator[Sighting | Gap]:
    busy = {one.pid for one in scene.standings if one.moves or one.spins}
    for one in _polled(scene):
        if one.holder and one.sure is sure and one.holder not in busy and not any(_compilers(scene)):
            quote = (
                f"{scene.name(one.by.pid)} polls {one.path}, which {scene.name(one.holder)} holds without building"
            )
            yield Sighting(quotes.shortened(quote), (one.holder, one.by.pid), one.path)
            yield Sighting(quotes.stack(one.by))
    yield from _unseen(scene)


def _on_network_disk(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process polls a lock on a network file system that nobody on this machine holds, and nobody compiles."""
    if any(_compilers(scene)):
        return
    for one in _polled(scene):
        if storage.is_slow(one.filesystem) and not one.holder:
            quote = f"{scene.name(one.by.pid)} polls {one.path} on {one.filesystem}; nobody on this machine holds it"
            yield Sighting(quotes.shortened(quote), (one.by.pid,), one.path)
            yield Sighting(quotes.stack(one.by), (one.by.pid,))
    yield from _somewhere_on_network_disk(scene)
    yield from _unseen(scene)


def _somewhere_on_network_disk(scene: Scene) -> Iterator[Sighting]:
    """A process polls a lock that was not seen, and the folders of builds lie on a network file system."""
    seen = {one.by.pid for one in polled(scene)}
    for place in storage.slow_places(scene, *storage.CACHES):
        for one in scene.standings:
            if in_filelock(one) and not for_the_hub(one) and one.pid not in seen:
                yield Sighting(storage.lying(place).quote, (one.pid,), place.path)
                yield Sighting(quotes.stack(one), (one.pid,))


def _foreseen(scene: Scene) -> Iterator[Sighting | Gap]:
    """Lock files from before, in whose folders nobody builds."""
    look = scene.last
    if look and isinstance(look.locks, Gap):
        yield look.locks
    for lock in _left(scene):
        yield Sighting(quotes.shortened(clauses.listed_locks((lock,))), what=lock.path)


def _building(scene: Scene) -> Iterator[Sighting]:
    yield from building.at_work(scene)
    yield from _compilers(scene)


def _compilers(scene: Scene) -> Iterator[Sighting]:
    """A compiler works somewhere: it may be what the lock is for."""
    for one in scene.standings:
        if one.look.process.role is Role.COMPILER and one.state not in "ZX":
            yield Sighting(f"{scene.name(one.pid)} is at work", (one.pid,))


def _seen(scene: Scene, waiting: list[Standing]) -> Iterator[Sighting]:
    left = _left(scene)
    if left and waiting:
        pids = tuple(one.pid for one in waiting)
        yield Sighting(quotes.shortened(clauses.listed_locks(left)), pids, left[0].path)
        yield from (Sighting(quotes.stack(one), (one.pid,)) for one in waiting[:QUOTED])


def _left(scene: Scene) -> tuple[Lock, ...]:
    return tuple(lock for lock in scene.bare_locks if not lock.holder and not lock.builders)


def _is_in_file_baton(one: Standing) -> bool:
    return any("baton" in f"{frame.file} {frame.function}".lower() for frame in one.stack)


def _unseen(scene: Scene) -> Iterator[Gap]:
    look = scene.last
    if look and isinstance(look.locks, Gap):
        yield look.locks
    yield from unseen_stacks(scene)


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if not any(one.pids for one in seen):
        return "the build lock {what} is left from before"
    if not any(one.what for one in seen):
        names = scene.names.all(tuple(dict.fromkeys(pid for one in seen for pid in one.pids)))
        return f"{names} waits for a build lock, and nobody of this server builds"
    if len(seen[0].pids) > 1 and seen[0].pids[0] in {one.holder for one in polled(scene)}:
        return (
            f"{scene.name(seen[0].pids[1])} waits for the build lock {{what}}, which {{who}} holds without building"
        )
    pids = tuple(dict.fromkeys(pid for one in seen for pid in one.pids))
    if not any(lock.path == seen[0].what for lock in scene.bare_locks):
        return (
            f"{scene.names.all(pids)} waits for the build lock {{what}}, on a disk whose locks are not to be trusted"
        )
    verb = "waits" if len(pids) == 1 else "wait"
    return f"{scene.names.all(pids)} {verb} for the lock file {{what}}, left behind by a process that is gone"


def _advice(_scene: Scene, seen: tuple[Sighting, ...]) -> Advice:
    path = next((one.what for one in seen if one.what), "LOCKFILE")
    return Advice(
        confirm=(
            "lslocks and fuser -v on the file; pgrep -a 'ninja|nvcc|cicc|ptxas' on every machine that shares it.",
        ),
        repair=(
            f"Make sure that no build is running, then: rm {shlex.quote(printable(path, 300))}",
            (
                "Keep build folders on a local disk: TORCH_EXTENSIONS_DIR, FLASHINFER_WORKSPACE_BASE, "
                "TRITON_CACHE_DIR."
            ),
        ),
    )


CAUSE = Cause(
    id="stale_jit_lock",
    evident=True,
    nature=Nature.HELD,
    title=_title,
    clues=(
        decides("Does a process sit in a FileBaton on a lock file in whose folder nobody works?", _surely),
        decides("Does a process poll a lock that another holds without building?", _held_idly),
        supports("Does a process poll one of several locks that others hold without building?", _perhaps_idly),
        supports("Does a process poll a lock file in whose folder nobody works?", _probably),
        supports("Does a process poll a lock on a network file system that nobody here holds?", _on_network_disk),
        supports("Does the log tell of a build lock that is waited for, where nobody builds or moves?", _told),
        supports("Does all the server sit in a FileBaton, with locks that could not be seen?", _all_poll),
        supports("Where stacks are out of sight, does all sleep, with a build lock left or held?", _naps_unseen),
        speaks_against("Is a compiler at work?", _building),
        foresees("Is a lock file left in a build folder where nobody builds?", _foreseen),
    ),
    advice=_advice,
    traps=("A folder shared with another machine: the builder may work there, unseen from here.",),
)
