"""A kernel on the GPU failed: it read or wrote where it must not, or an assertion in it did not hold."""

from collections.abc import Iterator

from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.failures import Kind, failed
from firstlight.diagnose.scene import Scene


def _told(scene: Scene) -> Iterator[Sighting]:
    yield from failed(scene, Kind.KERNEL)


CAUSE = Cause(
    id="kernel_fault",
    nature=Nature.SYMPTOM,
    title="a kernel on the GPU failed ({what})",
    clues=(supports("Did a process end as CUDA told that a kernel had failed?", _told),),
    advice=Advice(
        steps=("Start once with CUDA_LAUNCH_BLOCKING=1: the traceback then names the call whose kernel it was.",),
        work_around=("Other kernels: another --attention-backend or --moe-runner-backend; --enforce-eager.",),
    ),
    traps=("It is told at the next call that waits for the GPU: the innermost frame is rarely the one to blame.",),
)
