"""A library of kernels has nothing that this machine's GPU can run: neither machine code nor PTX."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said

_REFUSED = r"no kernel image is available|cudaErrorNoKernelImageForDevice|unsupported gpu architecture"


def _uncovered(scene: Scene) -> Iterator[Sighting]:
    for one in scene.bundle.host.coverage:
        if one.missing and not one.runs_from_ptx:
            has = ", ".join(one.machine_code) or "none"
            quote = f"{one.library} has machine code for {has}, and none for {', '.join(one.missing)}"
            yield Sighting(shortened(quote), what=", ".join(one.missing))


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_uncovered(scene), said(scene, _REFUSED))


CAUSE = Cause(
    id="no_machine_code",
    nature=Nature.DEVICE,
    title="kernels were not built for this GPU (compute capability {what})",
    clues=(
        decides("Did the driver refuse kernels of a library that has none for this GPU?", _refused),
        foresees("Has a library of kernels nothing that this GPU can run?", _uncovered),
    ),
    advice=Advice(
        confirm=("cuobjdump --list-elf and --list-ptx on the library.",),
        work_around=("Other kernels: --attention-backend triton, --moe-runner-backend triton.",),
        repair=("Install a build for this compute capability, or build it: TORCH_CUDA_ARCH_LIST.",),
    ),
    traps=("A library that is never called does no harm: other backends may be in use.",),
)
