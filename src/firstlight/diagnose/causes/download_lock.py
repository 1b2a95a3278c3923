"""A download waits for the lock of another one."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.words import printable
from firstlight.diagnose import quotes
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.failures import Kind, ended, failures
from firstlight.diagnose.filelocks import DOWNLOAD, Polled, for_the_hub, in_filelock, polled
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import said, unseen_stacks

_IN_CACHE = re.compile(r"/(models|datasets)--[^/]+/.*\.lock$")
_SAYS = r"waiting to acquire lock on .*\.lock"
_REFUSED = r"(PermissionError|Permission denied|Errno 13\b).*/\.locks/|/\.locks/.*(Permission denied|Errno 13\b)"


def _polled(scene: Scene) -> Iterator[Polled]:
    return (one for one in polled(scene) if DOWNLOAD.search(one.path))


def _held(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process waits for a download's lock, and the kernel says who holds it."""
    for one in _polled(scene):
        if one.holder and one.sure:
            yield from _quoted(scene, one.by.pid, one.holder, one.path)
    look = scene.last
    for lock in look.locks if look and not isinstance(look.locks, Gap) else ():
        if DOWNLOAD.search(lock.path) and lock.holder:
            for pid in lock.waiters:
                yield from _quoted(scene, pid, lock.holder, lock.path)
    if look and isinstance(look.locks, Gap):
        yield look.locks
    yield from unseen_stacks(scene)


def _quoted(scene: Scene, pid: int, holder: int, path: str) -> Iterator[Sighting]:
    if pid != holder:
        quote = f"{scene.name(pid)} wants {path}, held by {scene.name(holder)}"
        yield Sighting(shortened(quote), (holder, pid), path)
        one = scene.standing(pid)
        yield from [Sighting(quotes.stack(one))] if one else []


def _nobody_known(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process polls a download's lock, and it is not known who holds it, or which of several it is."""
    for one in _polled(scene):
        if not one.holder or not one.sure:
            yield Sighting(shortened(f"{scene.name(one.by.pid)} polls {one.path}"), (one.by.pid,), one.path)
    for stand in scene.standings:
        if in_filelock(stand) and for_the_hub(stand) and not any(one.by.pid == stand.pid for one in polled(scene)):
            yield Sighting(quotes.stack(stand), (stand.pid,))
    yield from unseen_stacks(scene)


def _told(scene: Scene) -> Iterator[Sighting]:
    """The log says again and again that a lock is waited for."""
    yield from said(scene, _SAYS)


def _refused(scene: Scene) -> Iterator[Sighting]:
    """The lock file belongs to somebody else, and may not be opened."""
    yield from said(scene, _REFUSED)


def _ended_by_it(scene: Scene) -> Iterator[Sighting]:
    """A process ended as it did not get a lock of a download."""
    for one in failures(scene):
        if one.kind is Kind.LOCK and (DOWNLOAD.search(one.what) or _IN_CACHE.search(one.what)):
            yield one.sighting
            yield ended(one.end)


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if any(re.search(_REFUSED, one.quote) for one in seen):
        return "a lock of the hub's cache belongs to another user, and may not be opened"
    if scene.deaths and not scene.standings:
        return "a download did not get the lock {what}"
    known = len(seen[0].pids) > 1
    if not any(one.what for one in seen):
        return "a download waits for a lock"
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
        supports("Did a process end as it did not get a lock of a download?", _ended_by_it),
        supports("Was a lock of the cache refused to this user?", _refused),
    ),
    advice=_advice,
    traps=("Whoever holds it may download: it lets go when that is done.",),
    explains=frozenset({"file_lock_held"}),
)
