"""A library of kernels has nothing that this machine's GPU can run: neither machine code nor PTX."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.deaths import first_end
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said

_REFUSED = (
    r"no kernel image is available|cudaErrorNoKernelImageForDevice|unsupported gpu architecture"
    r"|invalid device function|(cuda|hip)ErrorInvalidDeviceFunction|hipErrorNoBinaryForGpu|ERROR_INVALID_ISA"
    r"|only supported on GPUs with compute capability|compute capability.{0,40}\b(is )?(required|not supported)"
    r"|CUDA_ERROR_NO_BINARY_FOR_GPU|only supports? \w+ GPUs or newer|not supported on \.target"
    r"|\bSM_?\d{2,3}\b.{0,30}\b(is|are) (not supported|unsupported)|\brequires (SM_?|sm_)\d{2,3}\b"
    r"|TensileLibrary.*for GPU arch|sm_\d+ is not compatible with the current PyTorch"
)


def _uncovered(scene: Scene) -> Iterator[Sighting]:
    for one in scene.bundle.host.coverage:
        if one.missing and not one.runs_from_ptx:
            has = ", ".join(one.machine_code) or "none"
            quote = f"{one.library} has machine code for {has}, and none for {', '.join(one.missing)}"
            yield Sighting(shortened(quote), what=", ".join(one.missing))


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_uncovered(scene), said(scene, _REFUSED))


def _told(scene: Scene) -> Iterator[Sighting | Gap]:
    """A line alone may tell of a backend that another took the place of."""
    yield from both(said(scene, _REFUSED), first_end(scene))


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    lacking = " (compute capability {what})" if any(one.what for one in seen) else ""
    return f"kernels were not built for this GPU{lacking}"


CAUSE = Cause(
    id="no_machine_code",
    nature=Nature.DEVICE,
    title=_title,
    clues=(
        decides("Did the driver refuse kernels of a library that has none for this GPU?", _refused),
        supports("Was there nothing for this GPU, by the log, and did a process end?", _told),
        foresees("Has a library of kernels nothing that this GPU can run?", _uncovered),
    ),
    advice=Advice(
        confirm=("cuobjdump --list-elf and --list-ptx on the library.",),
        work_around=("Other kernels: --attention-backend triton, --moe-runner-backend triton.",),
        repair=("Install a build for this compute capability, or build it: TORCH_CUDA_ARCH_LIST.",),
    ),
    traps=("A library that is never called does no harm: other backends may be in use.",),
)
