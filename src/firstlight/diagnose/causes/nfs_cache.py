"""A compile cache lies on a network file system, and one rank trips over what another does there."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose import storage, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, lines, said

_LOST = (
    r"Stale file handle|Errno 116|Errno 39\b|Directory not empty|No such file or directory|FileNotFoundError"
    r"|\.nfs[0-9a-f]{8,}|Device or resource busy|No locks available|Errno 37\b"
)
_DATABASE = r"sqlite.{0,40}(OperationalError|disk I/O error)|database is locked|locking protocol"
_CACHES = r"(put|get|dump|replace|rename|_?write\w*|save\w*|load\w*|acquire) .*(triton|_inductor|cache|flashinfer)"


def _places(scene: Scene) -> Iterator[Sighting]:
    """Compile caches on a slow file system."""
    yield from map(storage.lying, storage.slow_places(scene, *storage.CACHES))


def _tripped(scene: Scene) -> Iterator[Sighting]:
    """Errors of a file system that name something inside such a cache."""
    roots = [
        place.path.rstrip("/") + "/" for place in storage.slow_places(scene, *storage.CACHES) if place.path != "/"
    ]
    for line in lines(scene.bundle):
        if any(root in line.message for root in roots) and re.search(_LOST, line.message, re.IGNORECASE):
            yield Sighting(shortened(f"log: {line.source or 'the server'}: {line.message}"))


def _error_and_place(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_tripped(scene), _places(scene))


def _database(scene: Scene) -> Iterator[Sighting | Gap]:
    """A cache's database cannot be locked or written, and the caches, or the home that they lie in, are on a slow
    file system: SQLite needs locks that work."""
    there = map(storage.lying, storage.slow_places(scene, *storage.CACHES, "home"))
    yield from both(said(scene, _DATABASE), there)


def _waits_in_cache(scene: Scene) -> Iterator[Sighting | Gap]:
    """Somebody stands in a cache's code, held by the kernel for storage, and the cache lies on a slow file system."""
    yield from both(both(storage.in_storage(scene), where.stands(scene, _CACHES)), _places(scene))


CAUSE = Cause(
    id="nfs_cache",
    nature=Nature.MACHINE,
    title="a compile cache on {what} is not kept in order between ranks",
    clues=(
        decides("Does an error name a file in a compile cache on a network file system?", _error_and_place),
        supports("Does a thread wait for storage in a cache on a network file system?", _waits_in_cache),
        supports("Is a cache's database refused on a network file system?", _database),
        foresees("Does a compile cache lie on a network file system?", _places),
    ),
    advice=Advice(
        confirm=("stat -f -c %T on the cache folder; the earliest error over all ranks, not the last.",),
        repair=(
            (
                "Put the caches on a local disk, one for each machine: TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR, "
                "VLLM_CACHE_ROOT, SGLANG_CACHE_DIR, TORCH_EXTENSIONS_DIR, FLASHINFER_WORKSPACE_BASE."
            ),
        ),
    ),
    traps=("Ranks that lost a peer print errors of their own later; the cause is the earliest.",),
)
