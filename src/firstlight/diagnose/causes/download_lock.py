"""A download waits for the lock of another one."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Lock
from firstlight.core.words import printable
from firstlight.diagnose import where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, last, processes, said

PATH = re.compile(r"/\.locks/.*\.lock$|/[0-9a-f]{40,64}[\w.-]*\.lock$")
"""The hub's locks, and those under which SGLang and vLLM resolve a model (in the folder for temporary files)."""
_WAITS = r"WeakFileLock|/filelock/|/huggingface_hub/"
_SAYS = r"waiting to acquire lock on .*\.lock"
_REFUSED = r"(PermissionError|Permission denied|Errno 13\b).*/\.locks/|/\.locks/.*(Permission denied|Errno 13\b)"


def _open_locks(scene: Scene) -> Iterator[tuple[int, str]]:
    """Download locks that a process has open: who, and which."""
    for one in processes(scene):
        yield from ((one.process.id.pid, file.target) for file in one.files if PATH.search(file.target))


def _known(scene: Scene) -> dict[str, Lock]:
    look = last(scene)
    locks = look.locks if look and not isinstance(look.locks, Gap) else ()
    return {one.path: one for one in locks if PATH.search(one.path)}


def _held(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process stands where a lock is taken, has a download's lock file open, and the kernel says who holds it."""
    known, standing = _known(scene), list(where.at(scene, _WAITS))
    waiting = {there.pid for there in standing if not isinstance(there, Gap)}
    for pid, path in _open_locks(scene):
        lock = known.get(path)
        if pid in waiting and lock and lock.holder not in {0, pid}:
            yield _quoted(scene, pid, lock)
    for lock in known.values():
        yield from (_quoted(scene, pid, lock) for pid in lock.waiters if lock.holder not in {0, pid})
    yield from (there for there in standing if isinstance(there, Gap))


def _quoted(scene: Scene, pid: int, lock: Lock) -> Sighting:
    quote = f"{scene.name(pid)} wants {lock.path}, held by {scene.name(lock.holder)}"
    return Sighting(shortened(quote), (lock.holder, pid), lock.path)


def _nobody_known(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process stands where such a lock is taken, and nobody is known to hold it."""
    known = _known(scene)
    open_ = [
        Sighting(shortened(f"{scene.name(pid)} has {path} open"), (pid,), path)
        for pid, path in _open_locks(scene)
        if path not in known or not known[path].holder
    ]
    yield from both(open_, where.stands(scene, _WAITS))


def _told(scene: Scene) -> Iterator[Sighting]:
    """The log says again and again that a lock is waited for."""
    yield from said(scene, _SAYS)


def _refused(scene: Scene) -> Iterator[Sighting]:
    """The lock file belongs to somebody else, and may not be opened."""
    yield from said(scene, _REFUSED)


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if any(re.search(_REFUSED, one.quote) for one in seen):
        return "a lock of the hub's cache belongs to another user, and may not be opened"
    known = len(seen[0].pids) > 1
    return "a download waits for the lock {what}" + (
        f", held by {shortened(scene.name(seen[0].pids[0]))}" if known else ""
    )


def _advice(_scene: Scene, seen: tuple[Sighting, ...]) -> Advice:
    path = printable(next((one.what for one in seen if one.what), "LOCKFILE"), 300)
    return Advice(
        confirm=(f"lslocks | grep lock; fuser -v '{path}'; is a .incomplete file growing?",),
        work_around=("End the other download, or wait for it; where nobody holds the lock, remove the file.",),
        repair=(
            (
                "One download before the start (hf download MODEL), and a cache of its own for each user: "
                "HF_HUB_CACHE."
            ),
        ),
    )


CAUSE = Cause(
    id="download_lock",
    nature=Nature.HELD,
    title=_title,
    clues=(
        decides("Does a process wait for a download's lock that another holds?", _held),
        supports("Does a process wait for a download's lock that nobody is known to hold?", _nobody_known),
        supports("Does the log say that a download's lock is waited for?", _told),
        supports("Was a lock of the cache refused to this user?", _refused),
    ),
    advice=_advice,
    traps=("Whoever holds it may download: it lets go when that is done.",),
    explains=frozenset({"file_lock_held"}),
)
