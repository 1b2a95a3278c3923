"""There are fewer GPUs than ranks that want one each."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.words import counted
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, foresees, supports
from firstlight.diagnose.failures import Kind, failed
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import gpus, variables

_ENGINES = frozenset({"vllm", "sglang"})
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_WHOLE = re.compile(r"\s*(\d+|GPU-[0-9a-fA-F-]+)\s*")
"""How a whole GPU is named, and not a part of one (MIG)."""
_SPREAD = re.compile(r"(data-parallel|dp)-(?!size$).*|dp[a-z]|headless")
"""Options with which some ranks may run on other machines."""


def _wants(scene: Scene) -> int:
    """How many GPUs the ranks of this machine want; 0 where that is not known, or they run on something else."""
    bundle, set_ = scene.bundle, variables(scene)
    elsewhere = (
        bundle.option("device") not in {None, ("cuda",), ("auto",)}
        or set_.get("VLLM_TARGET_DEVICE", "cuda") != "cuda"
        or "VLLM_CPU_KVCACHE_SPACE" in set_
        or "SGLANG_USE_CPU_ENGINE" in set_
    )
    return 0 if elsewhere or bundle.engine not in _ENGINES else bundle.ranks


def _visible(scene: Scene) -> int | Gap | None:
    """How many whole GPUs the server would see; None where parts of GPUs are told apart."""
    known = gpus(scene)
    if isinstance(known, Gap):
        return known
    named = next((value for name in _VISIBLE if (value := variables(scene).get(name, ""))), "")
    words = [word for word in named.split(",") if word.strip()]
    if not all(map(_WHOLE.fullmatch, words)):
        return None
    return min(len(known), len(words)) if words else len(known)


def _certain(scene: Scene) -> bool:
    """Whether no rank could run on another machine. vLLM without a word on it went to Ray, before version 0.11.1."""
    bundle = scene.bundle
    spread = bundle.nodes > 1 or any(_SPREAD.fullmatch(name) for name, _ in bundle.options)
    return not spread and (bundle.engine == "sglang" or bundle.option("distributed-executor-backend") == ("mp",))


def _fewer(scene: Scene, *, certain: bool) -> Iterator[Sighting | Gap]:
    wanted, there = _wants(scene), _visible(scene)
    if isinstance(there, Gap):
        yield there
    elif there and there < wanted and _certain(scene) is certain:
        yield Sighting(
            f"{counted(wanted, 'rank')} on this machine, which has {counted(there, 'GPU')} for them", what=str(wanted)
        )


def _surely(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from _fewer(scene, certain=True)


def _perhaps(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from _fewer(scene, certain=False)


def _none(scene: Scene) -> Iterator[Sighting | Gap]:
    """No driver tells of a GPU; whether the engine was built for one cannot be seen."""
    wanted, there = _wants(scene), _visible(scene)
    if isinstance(there, Gap):
        yield there
    elif there == 0 and wanted > 1:
        yield Sighting(f"{counted(wanted, 'rank')}, and no driver here tells of a GPU", what=str(wanted))


def _ended_by_it(scene: Scene) -> Iterator[Sighting]:
    """A process ended as it found fewer GPUs than it wants."""
    wanted = str(scene.bundle.ranks or "")
    yield from (one._replace(what=wanted) for one in failed(scene, Kind.GPU_COUNT))


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    several = any(one.what not in {"", "1"} for one in seen)
    return "{what} ranks want more GPUs than are there" if several else "the server finds fewer GPUs than it wants"


CAUSE = Cause(
    id="too_few_gpus",
    nature=Nature.MACHINE,
    title=_title,
    clues=(
        supports("Did a process end as it found fewer GPUs than it wants?", _ended_by_it),
        foresees("Are there fewer GPUs than ranks, none of which can run elsewhere?", _surely, surely=True),
        foresees("Are there fewer GPUs than ranks, of which some might run on other machines?", _perhaps),
        foresees("Is there no GPU for several ranks, unless the engine was built for CPUs?", _none),
    ),
    advice=Advice(
        confirm=("nvidia-smi -L, and CUDA_VISIBLE_DEVICES, tell what the server would see.",),
        repair=("A smaller --tensor-parallel-size (--tp) or --data-parallel-size, or more machines (--nnodes).",),
    ),
)
