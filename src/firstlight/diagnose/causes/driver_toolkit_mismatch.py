"""CUDA libraries of different major versions meet in one process, the driver is older than they need, or the driver's
library is not that of the kernel module: an image's own (cuda-compat), or the one of before an update."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Phase
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.deaths import first_end
from firstlight.diagnose.devices import COLLECTIVE, COMMUNICATOR, some_in, unseen_and_still, version
from firstlight.diagnose.failures import Kind, ended, failures
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, kernel_said, libraries, said

_PTX_TOO_NEW = r"PTX was compiled with an unsupported toolchain|UnsupportedPtxVersion|UNSUPPORTED_PTX_VERSION"
_TWO_DRIVERS = (
    r"unsupported display driver / cuda driver|forward compatibility was attempted|\berror:? 80[34]\b"
    r"|CUDA_ERROR_(SYSTEM_DRIVER_MISMATCH|COMPAT_NOT_SUPPORTED)|driver/library version mismatch"
)
_TOO_OLD = (
    r"driver version is insufficient for CUDA runtime|cudaErrorInsufficientDriver"
    rf"|NVIDIA driver on your system is too old|unsatisfied condition: (cuda|driver)\W|{_TWO_DRIVERS}"
)
_OF_TOOLKIT = re.compile(r"lib(cudart|cublas|cublasLt|nvrtc|cudnn|cusparse|cusolver|cufft|curand|nvJitLink)\.so\.\d")
_USES_CUDA = (
    rf"{COMMUNICATOR}|{COLLECTIVE}|_cuda_init|_lazy_init|^cu(da)?[A-Z]\w+ \("
    r"|^(device_count|is_available|set_device) \("
)


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    """CUDA refuses for that reason, and the versions that are mapped agree."""
    yield from both(said(scene, _TOO_OLD), _older(scene))


def _refused_ptx(scene: Scene) -> Iterator[Sighting | Gap]:
    """Libraries of a newer minor version work, but their PTX does not."""
    yield from both(said(scene, _PTX_TOO_NEW), _older(scene, numbers=2))


def _not_the_modules(scene: Scene) -> Iterator[Sighting | Gap]:
    """CUDA or NVML refuses a pair of driver parts, and the library that is mapped is not the kernel module's."""
    yield from both(said(scene, _TWO_DRIVERS), _other_library(scene))


def _other_library(scene: Scene) -> Iterator[Sighting | Gap]:
    module = scene.bundle.host.driver
    if isinstance(module, Gap):
        yield module
        return
    for found in libraries(scene, "cuda_driver"):
        if isinstance(found, Gap):
            yield found
        elif found[1].version and found[1].version != module:
            yield Sighting(shortened(f"mapped: {found[1].path}, and the driver is {module}"), what=found[1].path)


def _kernel_refuses(scene: Scene) -> Iterator[Sighting | Gap]:
    """The kernel module turns a client of another version away, and somebody uses CUDA or has ended."""
    yield from both(kernel_said(scene, r"NVRM: API mismatch"), _affected(scene))


def _lacks_a_toolkit(scene: Scene) -> Iterator[Sighting]:
    """A process ended as a library of the toolkit was missing, in the version that its wheels were built for."""
    for one in failures(scene):
        if one.kind is Kind.INSTALLATION and _OF_TOOLKIT.match(one.what):
            yield one.sighting
            yield ended(one.end)


def _told(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(said(scene, f"{_TOO_OLD}|{_PTX_TOO_NEW}"), _affected(scene))


def _affected(scene: Scene) -> Iterator[Sighting | Gap]:
    """Somebody has ended, or uses CUDA."""
    yield from chain(first_end(scene), some_in(scene, _USES_CUDA))


def _older(scene: Scene, numbers: int = 1) -> Iterator[Sighting | Gap]:
    """The driver supports CUDA up to a version below that of the runtime that is mapped, by so many numbers of it."""
    supported = scene.bundle.host.cuda
    if isinstance(supported, Gap):
        yield supported
        return
    for found in libraries(scene, "cuda_runtime"):
        if isinstance(found, Gap):
            yield found
        elif version(found[1].version)[:numbers] > version(supported)[:numbers] > ():
            yield Sighting(
                shortened(f"mapped: CUDA {found[1].version}, and the driver supports {supported}: {found[1].path}")
            )


def _two(scene: Scene) -> Iterator[Sighting | Gap]:
    early = scene.bundle.phase in {Phase.RENDEZVOUS, Phase.COMM_INIT}
    unseen = unseen_and_still(scene) if early else ()
    yield from both(_mixed(scene), chain(some_in(scene, _USES_CUDA), unseen))


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
        decides("Does CUDA refuse PTX of a toolkit that is newer than the driver?", _refused_ptx),
        decides(
            "Is the driver's library that is mapped refused, and not that of the kernel module?", _not_the_modules
        ),
        supports("Does the kernel module turn away a client of another version?", _kernel_refuses),
        supports("Does CUDA refuse the driver while somebody uses it, or ended?", _told),
        supports("Did a process end as a library of another toolkit was missing?", _lacks_a_toolkit),
        supports("Does a process that uses GPUs map two major versions of CUDA?", _two),
        foresees("Does the driver support less than the runtime that is mapped?", _older),
    ),
    advice=Advice(
        confirm=("grep -E 'libcudart|libcuda.so' /proc/PID/maps; nvidia-smi shows what the driver supports.",),
        work_around=("Unset LD_LIBRARY_PATH, so that the wheels find their own CUDA libraries.",),
        repair=("Use an image with the wheels' CUDA version (+cu128 in a CUDA 12.8 image), or a newer driver.",),
    ),
    traps=(
        "An image's own driver library (cuda-compat) is for data-centre GPUs with older drivers; elsewhere it fails.",
        "Two versions that are mapped are often harmless: an A/B with the matching image tells.",
    ),
)
