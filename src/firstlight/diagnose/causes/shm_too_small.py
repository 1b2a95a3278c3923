"""Shared memory (/dev/shm) is full, or as small as a container's default, and ranks exchange data through it."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.words import size
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said, stands_in

DOCKER_DEFAULT_BYTES = 64 * 1024 * 1024
FULL_SHARE = 0.99
_REFUSED = r"No space left on device|posix_fallocate|shared memory.*(failed|error)|Bus error|/dev/shm"
_EXCHANGES = r"nccl|shm|shared_memory|all_reduce|broadcast|MessageQueue"


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log says that shared memory was refused, and /dev/shm is indeed full or tiny."""
    yield from both(said(scene, _REFUSED), _short(scene))


def _short(scene: Scene) -> Iterator[Sighting | Gap]:
    """/dev/shm has no room, or is no larger than a container gets by default."""
    host = scene.bundle.host
    total, used = host.shm_bytes, host.shm_used_bytes
    if isinstance(total, Gap) or isinstance(used, Gap):
        yield total if isinstance(total, Gap) else used  # type: ignore[misc]
    elif total and (used >= FULL_SHARE * total or total <= DOCKER_DEFAULT_BYTES):
        yield Sighting(f"/dev/shm: {size(used)} of {size(total)} used", what="/dev/shm")


def _exchanging(scene: Scene) -> Iterator[Sighting | Gap]:
    """/dev/shm is short, and somebody stands where ranks exchange data."""
    yield from both(_short(scene), stands_in(scene, _EXCHANGES))


CAUSE = Cause(
    id="shm_too_small",
    nature=Nature.MACHINE,
    title="shared memory (/dev/shm) is too small or full",
    clues=(
        decides("Does the log say that shared memory was refused, and is it short?", _refused),
        supports("Is /dev/shm short while ranks exchange data?", _exchanging),
        foresees("Is /dev/shm full, or as small as a container's default?", _short),
    ),
    advice=Advice(
        confirm=("df -h /dev/shm; NCCL_DEBUG=WARN shows what NCCL was refused.",),
        work_around=("NCCL_SHM_DISABLE=1 keeps NCCL out of it, and is slower.",),
        repair=("Start the container with --shm-size=16g or --ipc=host; remove what earlier runs left in /dev/shm.",),
    ),
    traps=("A small /dev/shm with room left is no cause by itself: see whether anything was refused.",),
)
