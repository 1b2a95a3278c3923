"""Shared memory (/dev/shm) is full, or as small as a container's default, and ranks exchange data through it."""

from collections.abc import Iterator
from signal import Signals

from firstlight.core.gap import Gap
from firstlight.core.words import exit_words, size
from firstlight.diagnose import where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, rules_out, supports
from firstlight.diagnose.failures import Kind, failed
from firstlight.diagnose.names import of_exit
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said

DOCKER_DEFAULT_BYTES = 64 * 1024 * 1024
FULL_SHARE = 0.99
NEARLY_FULL_SHARE = 0.85
AMPLE_BYTES = 1024 * 1024 * 1024
BUS_STATUS = 128 + Signals.SIGBUS
_REFUSED = (
    r"posix_fallocate.*(no space|failed)|(error|failed).{0,20}(creating|allocating) (a )?shared memory"
    r"|(shared memory|shm\b|/dev/shm|psm_\w+).*(no space left|too small|insufficient|cannot allocate|bus error)"
    r"|(no space left|bus error|insufficient).*(shared memory|shm\b|/dev/shm|/psm_)"
    r"|unable to (write to|resize) (file|shared memory object) <?/?torch_"
    r"|^(?!.*(permi|denied|no such|exist|too many|busy)).*(fail\w*|unable|cannot|not enough \w+).{0,80}/dev/shm"
)
_NO_ROOM = r"\bbus error\b|\bSIGBUS\b|Errno 14\b|(Errno|os error) 28\b(?!.*['\"]/(?!dev/shm|psm_|torch_))"
"""What touching or making such a file says that has no room, without its name."""
_EXCHANGES = (
    r"(_?create_\w*buffer|SharedMemory|__init__|ShmRing\w*|acquire_write|broadcast_object) .*(shm|shared_memory)"
)
_EXCHANGES_NATIVELY = r"ncclShm|shmOpen|shmSetup|posix_fallocate|ncclTransportP2pSetup|ncclCommInitRank"


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log says that shared memory was refused, and /dev/shm is indeed full or tiny."""
    yield from both(said(scene, _REFUSED), _short(scene))


def _short(scene: Scene) -> Iterator[Sighting | Gap]:
    """/dev/shm has no room, or is no larger than a container gets by default."""
    yield from _used(scene, FULL_SHARE, small=True)


def _nearly_full(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from _used(scene, NEARLY_FULL_SHARE, small=False)


def _used(scene: Scene, share: float, *, small: bool) -> Iterator[Sighting | Gap]:
    host = scene.bundle.host
    total, used = host.shm_bytes, host.shm_used_bytes
    if isinstance(total, Gap):
        yield total
    elif isinstance(used, Gap):
        yield used
    elif total and (used >= share * total or (small and total <= DOCKER_DEFAULT_BYTES)):
        yield Sighting(f"/dev/shm: {size(used)} of {size(total)} used", what="/dev/shm")


def _exchanging(scene: Scene) -> Iterator[Sighting | Gap]:
    """/dev/shm is nearly full, and somebody stands where ranks exchange data through it."""
    standing = (*where.stands(scene, _EXCHANGES), *where.stands(scene, _EXCHANGES_NATIVELY, native=True))
    yield from both(_nearly_full(scene), standing)


def _bus_error(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process died touching memory behind which there is no room, and /dev/shm is full or tiny."""
    died = (
        Sighting(shortened(f"{of_exit(gone)} {exit_words(gone)}"), (gone.id.pid,))
        for gone in scene.ended
        if gone.signal == Signals.SIGBUS or gone.code == BUS_STATUS
    )
    yield from both((*died, *said(scene, _NO_ROOM)), _short(scene))


def _ended_by_it(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process ended of a bus error, or as shared memory had no room, and /dev/shm is full or tiny."""
    yield from both(failed(scene, Kind.SHARED_MEMORY), _short(scene))


def _ample(scene: Scene) -> Iterator[Sighting]:
    """There is plenty of room."""
    host = scene.bundle.host
    total, used = host.shm_bytes, host.shm_used_bytes
    if not isinstance(total, Gap) and not isinstance(used, Gap) and total - used >= AMPLE_BYTES:
        yield Sighting(f"/dev/shm: {size(total - used)} of {size(total)} are free")


CAUSE = Cause(
    id="shm_too_small",
    nature=Nature.MACHINE,
    title="shared memory (/dev/shm) is too small or full",
    clues=(
        decides("Does the log say that shared memory was refused, and is it short?", _refused),
        supports("Is /dev/shm nearly full while ranks exchange data through it?", _exchanging),
        supports("Was there a bus error, or no room for something, while /dev/shm is short?", _bus_error),
        supports("Did a process end for want of shared memory while /dev/shm is short?", _ended_by_it),
        rules_out("Is there ample room in /dev/shm?", _ample),
        foresees("Is /dev/shm full, or as small as a container's default?", _short),
    ),
    advice=Advice(
        confirm=("df -h /dev/shm; NCCL_DEBUG=WARN shows what NCCL was refused.",),
        work_around=("NCCL_SHM_DISABLE=1 keeps NCCL out of it, and is slower.",),
        repair=(
            (
                "docker run --shm-size=16g or --ipc=host; in Kubernetes an emptyDir with medium: Memory on "
                "/dev/shm; remove what earlier runs left in /dev/shm."
            ),
        ),
    ),
    traps=("A small /dev/shm with room left is no cause by itself: see whether anything was refused.",),
)
