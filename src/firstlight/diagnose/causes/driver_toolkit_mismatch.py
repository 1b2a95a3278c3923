"""CUDA libraries of different major versions meet in one process, or the driver is older than they need."""

from collections import defaultdict
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.devices import COLLECTIVE, COMMUNICATOR, some_in, version
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, libraries, said

_TOO_OLD = (
    r"driver version is insufficient for CUDA runtime|CUDA_ERROR_(SYSTEM_DRIVER_MISMATCH|COMPAT_NOT_SUPPORTED)"
    r"|cudaErrorInsufficientDriver|NVIDIA driver on your system is too old|unsupported display driver / cuda driver"
)
_USES_CUDA = rf"{COMMUNICATOR}|{COLLECTIVE}|_cuda_init|_lazy_init|^cu(da)?[A-Z]\w+ \("


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    """CUDA refuses for that reason, and the versions that are mapped agree."""
    yield from both(said(scene, _TOO_OLD), _older(scene))


def _older(scene: Scene) -> Iterator[Sighting | Gap]:
    """The driver supports CUDA up to a major version below that of the runtime that is mapped."""
    supported = scene.bundle.host.cuda
    if isinstance(supported, Gap):
        yield supported
        return
    for found in libraries(scene, "cuda_runtime"):
        if isinstance(found, Gap):
            yield found
        elif version(found[1].version)[:1] > version(supported)[:1] > ():
            yield Sighting(
                shortened(f"mapped: CUDA {found[1].version}, and the driver supports {supported}: {found[1].path}")
            )


def _two(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_mixed(scene), some_in(scene, _USES_CUDA))


def _mixed(scene: Scene) -> Iterator[Sighting | Gap]:
    """One process maps CUDA runtimes of two major versions."""
    majors: dict[int, dict[tuple[int, ...], str]] = defaultdict(dict)
    for found in libraries(scene, "cuda_runtime"):
        if isinstance(found, Gap):
            yield found
        elif version(found[1].version):
            majors[found[0].process.id.pid][version(found[1].version)[:1]] = found[1].path
    for pid, paths in majors.items():
        if len(paths) > 1:
            for (major,), path in sorted(paths.items()):
                yield Sighting(shortened(f"{scene.name(pid)} maps CUDA {major}: {path}"), (pid,))


CAUSE = Cause(
    id="driver_toolkit_mismatch",
    nature=Nature.DEVICE,
    title="CUDA libraries and driver do not go together",
    clues=(
        decides("Does CUDA refuse a driver that is older than what is mapped?", _refused),
        supports("Does a process that uses GPUs map two major versions of CUDA?", _two),
        foresees("Does the driver support less than the runtime that is mapped?", _older),
    ),
    advice=Advice(
        confirm=("grep -E 'libcudart|libcuda.so' /proc/PID/maps; nvidia-smi shows what the driver supports.",),
        work_around=("Unset LD_LIBRARY_PATH, so that the wheels find their own CUDA libraries.",),
        repair=("Use an image with the wheels' CUDA version (+cu128 in a CUDA 12.8 image), or a newer driver.",),
    ),
    traps=("Two versions that are mapped are often harmless: an A/B with the matching image tells.",),
)
