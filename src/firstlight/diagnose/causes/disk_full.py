"""A file system is full, or a quota is used up, on which the server writes."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.words import size
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.failures import Kind, ended, failed, failures
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene

LITTLE_BYTES = 256 * 1024 * 1024


def _known(scene: Scene) -> Iterator[Sighting]:
    """Somebody ended as a write was refused, and the folder that it went to is known to be full."""
    full = [
        one
        for one in scene.bundle.host.places
        if not isinstance(one.free_bytes, Gap) and one.free_bytes < LITTLE_BYTES and one.purpose != "shm"
    ]
    for one in failures(scene):
        there = next((place for place in full if f"{one.what}/".startswith(f"{place.path.rstrip('/')}/")), None)
        if one.kind is Kind.DISK and one.what and there and not isinstance(there.free_bytes, Gap):
            yield one.sighting
            yield Sighting(shortened(f"{there.path}: {size(there.free_bytes)} are free"), what=one.what)
            yield ended(one.end)


def _told(scene: Scene) -> Iterator[Sighting]:
    yield from failed(scene, Kind.DISK)


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    return f"there is no room left on the disk{' for {what}' if any(one.what for one in seen) else ''}"


CAUSE = Cause(
    id="disk_full",
    nature=Nature.MACHINE,
    title=_title,
    clues=(
        decides("Did a process end as it wrote to a folder that is full?", _known),
        supports("Did a process end as a disk was full?", _told),
    ),
    advice=Advice(
        confirm=("df -h and df -i on the folder (room, and inodes); quota -s.",),
        work_around=("Elsewhere: HF_HOME, TMPDIR, VLLM_CACHE_ROOT, TRITON_CACHE_DIR.",),
        repair=(
            "Remove what is not needed (old models in the hub's cache, half-finished downloads), or a larger disk.",
        ),
    ),
)
