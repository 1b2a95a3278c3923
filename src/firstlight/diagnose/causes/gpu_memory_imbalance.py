"""GPUs of one server have unequal memory free when it starts, since somebody else uses some of them."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu
from firstlight.core.words import size
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, gpus, said

UNEQUAL_SHARE = 0.1
"""Of a GPU's memory: SGLang refuses to start where the least free rank has 10 % less than the others."""
_SAYS = (
    r"memory capacity is (un|im)balanced|Free memory on device .* is less than desired GPU memory"
    r"|Error in memory profiling"
)


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(said(scene, _SAYS), _unequal(scene))


def _told(scene: Scene) -> Iterator[Sighting]:
    """Whoever compared the GPUs found them unequal; where the memory was given back since, nothing shows it now."""
    yield from (one._replace(what="one of them") for one in said(scene, r"memory capacity is (un|im)balanced"))


def _unequal(scene: Scene) -> Iterator[Sighting | Gap]:
    cards = gpus(scene)
    if isinstance(cards, Gap):
        yield cards
        return
    used = [(_used(card), card) for card in cards]
    known = [(amount, card) for amount, card in used if amount is not None]
    least = min((amount for amount, _ in known), default=0)
    for amount, card in known:
        total = card.memory_total_bytes
        if isinstance(total, int) and amount - least > UNEQUAL_SHARE * total:
            yield Sighting(
                f"GPU {card.index}: {size(amount)} used, on another {size(least)}", what=f"GPU {card.index}"
            )


def _used(card: Gpu) -> int | None:
    return None if isinstance(card.memory_used_bytes, Gap) else card.memory_used_bytes


CAUSE = Cause(
    id="gpu_memory_imbalance",
    nature=Nature.DEVICE,
    title="the GPUs have unequal memory free; {what} is used by somebody else",
    clues=(
        decides("Does the engine refuse unequal memory, and is it unequal?", _refused),
        supports("Does the engine say that memory is unequal?", _told),
        foresees("Is the memory of the GPUs unequally free?", _unequal),
    ),
    advice=Advice(
        confirm=("nvidia-smi --query-compute-apps=gpu_bus_id,pid,used_memory --format=csv names the users.",),
        work_around=("Choose GPUs that are free: CUDA_VISIBLE_DEVICES.",),
        repair=("End what uses the GPU, often a worker of an earlier run.",),
    ),
    traps=("Once a server has loaded, its own ranks differ, too.",),
)
