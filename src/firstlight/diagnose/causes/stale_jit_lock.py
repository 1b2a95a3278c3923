"""A build lock that processes wait for although nobody builds: left behind, held idly, or lost on a network disk.

torch's FileBaton and its kin are bare files made with O_EXCL; no table of the kernel tells who made them. filelock
(FlashInfer, SGLang, vLLM) asks for a flock again and again: the kernel tells who holds it, but not that it is wanted.
"""

import re
import shlex
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Lock, OpenFile
from firstlight.core.vocabulary import Role
from firstlight.core.words import printable
from firstlight.diagnose import building, clauses, quotes, storage, waits
from firstlight.diagnose.causes.download_lock import PATH as DOWNLOAD_LOCK
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, speaks_against, supports
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import last, unseen_stacks
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.waits import Kind

QUOTED = 3
_LOCK_FILE = re.compile(r"(^|/|\.)lock$|/locks/")


def _surely(scene: Scene) -> Iterator[Sighting | Gap]:
    """The only lock file is left alone on a local disk, somebody sits in a FileBaton, nobody compiles, and whoever
    made it is gone: it is older than this start, or somebody ended since."""
    polling, left = _polling(scene), _left(scene)
    alone = len(left) == 1 and not storage.is_slow(left[0].filesystem) and not any(_compilers(scene))
    if alone and any(map(_is_in_file_baton, polling)) and (_is_old(scene, left[0]) or scene.ended):
        yield from _seen(scene, polling)
    yield from _unseen(scene)


def _probably(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from _seen(scene, _polling(scene))
    yield from _unseen(scene)


def _is_old(scene: Scene, lock: Lock) -> bool:
    return lock.age_s >= scene.bundle.at - scene.bundle.started or not scene.bundle.started


def _polled(scene: Scene) -> Iterator[tuple[Standing, OpenFile]]:
    """Who polls a lock, and the lock files that it has open; downloads have their own cause."""
    for one in _polling(scene):
        for file in one.look.files:
            if file.kind == "file" and _LOCK_FILE.search(file.target) and not DOWNLOAD_LOCK.search(file.target):
                yield one, file


def _holder(scene: Scene, path: str) -> int:
    look = last(scene)
    locks = look.locks if look and not isinstance(look.locks, Gap) else ()
    return next((one.holder for one in locks if one.path == path and one.kind != "file"), 0)


def _held_idly(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process polls a lock that the kernel says another holds, and that one neither computes nor has it built."""
    busy = {one.pid for one in scene.standings if one.moves or one.spins}
    for one, file in _polled(scene):
        holder = _holder(scene, file.target)
        if holder not in {0, one.pid} and holder not in busy and not any(_compilers(scene)):
            quote = f"{scene.name(one.pid)} polls {file.target}, which {scene.name(holder)} holds without building"
            yield Sighting(quotes.shortened(quote), (holder, one.pid), file.target)
            yield Sighting(quotes.stack(one))
    yield from _unseen(scene)


def _on_network_disk(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process polls a lock on a network file system that nobody on this machine holds, and nobody compiles."""
    for one, file in _polled(scene):
        if storage.is_slow(file.filesystem) and not _holder(scene, file.target) and not any(_compilers(scene)):
            quote = f"{scene.name(one.pid)} polls {file.target} on {file.filesystem}; nobody on this machine holds it"
            yield Sighting(quotes.shortened(quote), (one.pid,), file.target)
            yield Sighting(quotes.stack(one), (one.pid,))
    yield from _unseen(scene)


def _foreseen(scene: Scene) -> Iterator[Sighting | Gap]:
    """Lock files from before, in whose folders nobody builds."""
    look = last(scene)
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


def _seen(scene: Scene, polling: list[Standing]) -> Iterator[Sighting]:
    left = _left(scene)
    if left and polling:
        pids = tuple(one.pid for one in polling)
        yield Sighting(quotes.shortened(clauses.listed_locks(left)), pids, left[0].path)
        yield from (Sighting(quotes.stack(one), (one.pid,)) for one in polling[:QUOTED])


def _left(scene: Scene) -> tuple[Lock, ...]:
    return tuple(lock for lock in scene.bare_locks if not lock.holder and not lock.builders)


def _polling(scene: Scene) -> list[Standing]:
    return [one for one in scene.standings if one.thread and (waits.polls_lock_file(one.thread) or _in_filelock(one))]


def _in_filelock(one: Standing) -> bool:
    """Whether it sleeps between two tries of the filelock package."""
    return one.wait.kind is Kind.SLEEPS and any("/filelock/" in frame.file for frame in one.stack[:3])


def _is_in_file_baton(one: Standing) -> bool:
    return any("baton" in f"{frame.file} {frame.function}".lower() for frame in one.stack)


def _unseen(scene: Scene) -> Iterator[Gap]:
    look = last(scene)
    if look and isinstance(look.locks, Gap):
        yield look.locks
    yield from unseen_stacks(scene)


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if not any(one.pids for one in seen):
        return "the build lock {what} is left from before"
    if len(seen[0].pids) > 1 and _holder(scene, seen[0].what) == seen[0].pids[0]:
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
    path = next((one.what for one in seen if one.what), "")
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
    nature=Nature.HELD,
    title=_title,
    clues=(
        decides("Does a process sit in a FileBaton on a lock file in whose folder nobody works?", _surely),
        decides("Does a process poll a lock that another holds without building?", _held_idly),
        supports("Does a process poll a lock file in whose folder nobody works?", _probably),
        supports("Does a process poll a lock on a network file system that nobody here holds?", _on_network_disk),
        speaks_against("Is a compiler at work?", _building),
        foresees("Is a lock file left in a build folder where nobody builds?", _foreseen),
    ),
    advice=_advice,
    traps=("A folder shared with another machine: the builder may work there, unseen from here.",),
)
