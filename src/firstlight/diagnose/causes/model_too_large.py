"""The model does not fit: its weights need more memory, or its download more room, than there is."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.words import size
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, foresees, supports
from firstlight.diagnose.failures import Kind, ended, failed, failures, memory
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import gpus

_SHRINKS = frozenset(
    {
        "quantization",
        "q",
        "load-format",
        "cpu-offload-gb",
        "cpu-offload-params",
        "offload-group-size",
        "offload-backend",
        "torchao-config",
        "json-model-override-args",
        "hf-overrides",
        "device",
        "base-gpu-id",
        "gpus",
        "config",
    }
)
"""Options with which weights may take less memory on the GPUs than they have bytes on disk, or lie elsewhere."""


def _needed(scene: Scene) -> int:
    """Bytes of the model's weight files; 0 if that is not known."""
    return max((one.needed_bytes for one in scene.bundle.host.places if one.purpose == "weights"), default=0)


def _gpu_memory(scene: Scene) -> int | Gap:
    """Memory of all GPUs together; 0 where there are none."""
    known = gpus(scene)
    if isinstance(known, Gap):
        return known
    totals = [one.memory_total_bytes for one in known]
    gap = next((one for one in totals if isinstance(one, Gap)), None)
    return gap if gap else sum(one for one in totals if not isinstance(one, Gap))


def _too_large(scene: Scene, *, surely: bool) -> Iterator[Sighting | Gap]:
    """The weights are larger than the memory of all GPUs of this machine, which is the only one."""
    needed, there = _needed(scene), _gpu_memory(scene)
    if isinstance(there, Gap):
        yield there
    elif 0 < there < needed and scene.bundle.nodes == 1:
        shrinks = any(name in _SHRINKS for name, _ in scene.bundle.options)
        if shrinks is not surely:
            yield Sighting(
                f"the weights take {size(needed)}, and all GPUs together have {size(there)}", what=size(needed)
            )


def _surely(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from _too_large(scene, surely=True)


def _perhaps(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from _too_large(scene, surely=False)


def _beyond_memory(scene: Scene) -> Iterator[Sighting]:
    """There is no GPU, and the weights are larger than the memory that the machine or the container has free."""
    host, needed = scene.bundle.host, _needed(scene)
    if _gpu_memory(scene) != 0:
        return
    limits = [host.memory_free_bytes, host.cgroup.memory_max_bytes]
    there = min([one for one in limits if not isinstance(one, Gap) and one > 0], default=0)
    if 0 < there < needed:
        yield Sighting(f"the weights take {size(needed)}, and {size(there)} of memory can be had", what=size(needed))


def _no_room(scene: Scene) -> Iterator[Sighting]:
    """What is to be downloaded is larger than the room where it goes."""
    for one in scene.bundle.host.places:
        if one.purpose == "hub_cache" and not isinstance(one.free_bytes, Gap) and one.free_bytes < one.needed_bytes:
            quote = f"{one.path}: {size(one.needed_bytes)} are to be downloaded, {size(one.free_bytes)} are free"
            yield Sighting(shortened(quote), what=size(one.needed_bytes))


OWN_SHARE = 0.8
"""Of a GPU's memory: who has run out with so much of it in his own hands is held up by nobody."""


def _outgrew(scene: Scene) -> Iterator[Sighting]:
    """A process ended for want of GPU memory, nearly all of which was its own."""
    for one in failures(scene):
        told = memory.told(one.message)
        if one.kind is Kind.GPU_MEMORY and told and told.own >= OWN_SHARE * told.total:
            what = size(max(told.own + told.wanted, _needed(scene)))
            yield one.sighting._replace(what=what)
            yield Sighting(f"{size(told.own)} of {size(told.total)} were its own")
            yield ended(one.end)


def _no_cache(scene: Scene) -> Iterator[Sighting]:
    """A process ended as the model left no room for the KV cache."""
    yield from failed(scene, Kind.CACHE_ROOM)


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if any(one.what for one in seen):
        return "the model ({what}) does not fit"
    return "the model leaves no room for its KV cache on the GPU"


CAUSE = Cause(
    id="model_too_large",
    nature=Nature.MACHINE,
    title=_title,
    clues=(
        supports("Did a process end for want of GPU memory that was nearly all its own?", _outgrew),
        supports("Did a process end as nothing was left for the KV cache?", _no_cache),
        foresees("Are the weights larger than the memory of all GPUs?", _surely, surely=True),
        foresees("Are they, as files, though an option may make them smaller?", _perhaps),
        foresees("Are the weights larger than the memory that is free, where there is no GPU?", _beyond_memory),
        foresees("Is a download larger than the room for it?", _no_room),
    ),
    advice=Advice(
        confirm=("du -shL on the model's folder; nvidia-smi; df -h.",),
        work_around=("--cpu-offload-gb puts a part into host memory, and is slow.",),
        repair=(
            "A quantised model (FP8, AWQ, GPTQ), more GPUs (--tensor-parallel-size), more nodes, or a larger disk.",
        ),
    ),
    traps=("Weights that just fit leave no room for the KV cache.",),
)
