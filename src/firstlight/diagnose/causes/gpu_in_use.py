"""Somebody else uses the GPUs already."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.words import size
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, foresees, supports
from firstlight.diagnose.deaths import first_end
from firstlight.diagnose.failures import ended, failures, memory
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, gpus, said

_BUSY = r"CUDA-capable device\(s\) is/are busy|cudaErrorDevices?Unavailable|CUDA_ERROR_DEVICE_UNAVAILABLE"
_TOO_LITTLE = r"Free memory on device .* is less than desired GPU memory"
TAKEN_SHARE = 0.15
"""Of the whole: contexts, graphs and libraries, which the figures of an error leave out, take less."""
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


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    """A GPU that only one process may have, and another has."""
    yield from both((one._replace(what="a GPU") for one in said(scene, _BUSY)), first_end(scene))


def _too_little(scene: Scene) -> Iterator[Sighting | Gap]:
    """The engine finds too little memory free, and somebody who is none of its processes has a good part of it."""
    yield from both(_used_by_others(scene), said(scene, _TOO_LITTLE))


def _used_by_others(scene: Scene) -> Iterator[Sighting | Gap]:
    known, own = gpus(scene), {one.pid for one in scene.standings}
    strangers = {
        other.pid
        for card in (() if isinstance(known, Gap) else known)
        for other in (() if isinstance(card.processes, Gap) else card.processes)
        if other.here is True and other.pid not in own
    }
    yield from (one for one in _used(scene) if isinstance(one, Gap) or set(one.pids) & strangers)


def _taken(scene: Scene) -> Iterator[Sighting]:
    """A process ended for want of GPU memory, a good part of which was somebody else's, by its own figures."""
    for one in failures(scene):
        told = memory.told(one.message) or memory.at_start(one.message)
        if told and told.others >= TAKEN_SHARE * told.total:
            quote = f"{size(told.others)} of {size(told.total)} were somebody else's, {size(told.own)} its own"
            yield one.sighting._replace(what="the memory of a GPU")
            yield Sighting(shortened(quote), what="the memory of a GPU")
            yield ended(one.end)


CAUSE = Cause(
    id="gpu_in_use",
    nature=Nature.DEVICE,
    title="{what} is in use already",
    clues=(
        supports("Did a process end as CUDA told that a GPU is busy or unavailable?", _refused),
        supports("Does the engine find too little memory free, where others use a good part?", _too_little),
        supports("Did a process end for want of GPU memory that was somebody else's?", _taken),
        foresees("Does somebody use a good part of a GPU's memory?", _used),
    ),
    advice=Advice(
        confirm=("nvidia-smi lists who uses which GPU.",),
        work_around=("CUDA_VISIBLE_DEVICES with GPUs that are free, or a smaller --gpu-memory-utilization.",),
        repair=("End what is not needed any more; an earlier run may have left it behind.",),
    ),
    traps=("In a container, the process that uses it may not be visible; its memory is.",),
)
