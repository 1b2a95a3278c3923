"""Somebody else uses the GPUs already."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.words import size
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, foresees
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import gpus

USED_SHARE = 0.08
"""What a driver and an idle desktop take is less."""


def _used(scene: Scene) -> Iterator[Sighting | Gap]:
    """GPUs of which others use a good part. Before a start, everybody is somebody else."""
    known = gpus(scene)
    if isinstance(known, Gap):
        yield known
        return
    for one in known:
        used, total = one.memory_used_bytes, one.memory_total_bytes
        if isinstance(used, Gap) or isinstance(total, Gap) or used < USED_SHARE * total:
            continue
        pids = () if isinstance(one.processes, Gap) else tuple(process.pid for process in one.processes)
        by = f" by pid {', '.join(map(str, pids[:4]))}" if pids else ""
        quote = f"GPU {one.index} ({one.name}): {size(used)} of {size(total)} are in use{by}"
        yield Sighting(shortened(quote), pids, f"GPU {one.index}")


CAUSE = Cause(
    id="gpu_in_use",
    nature=Nature.DEVICE,
    title="{what} is in use already",
    clues=(foresees("Does somebody use a good part of a GPU's memory?", _used),),
    advice=Advice(
        confirm=("nvidia-smi lists who uses which GPU.",),
        work_around=("CUDA_VISIBLE_DEVICES with GPUs that are free, or a smaller --gpu-memory-utilization.",),
        repair=("End what is not needed any more; an earlier run may have left it behind.",),
    ),
    traps=("In a container, the process that uses it may not be visible; its memory is.",),
)
