"""The engine's own all-reduce over peer memory: it exports buffers that CUDA cannot export, or spins for writes that
never arrive. Often only the trigger: ACS or the IOMMU is behind it."""

import re
from collections.abc import Iterator
from itertools import chain

from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, rules_out, supports
from firstlight.diagnose.deaths import first_end
from firstlight.diagnose.devices import (
    CUSTOM_ALL_REDUCE,
    FUSED_ALL_REDUCE,
    all_in,
    diverted,
    in_place,
    over_pcie,
    runners,
    spinning,
    spinning_or_unseen,
    spins,
    still,
    unseen_and_still,
)
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, gpus, said, variable

_FAILED = r"(cuda|hip) error.*custom_all_reduce\.cu|custom_all_reduce\.cu\S*:\d+.*(error|invalid)"
_SET_UP = r"\((symm_mem|\w*symmetric_memory)\w*\.py"
_WAITS_FOR_GPU = r"^\S*synchronize\w* ?\(|^(cu|cuda|hip)(Stream|Event|Device|Ctx)(Synchronize|Query)"
_CHOICE = re.compile(r"Using \['(\w*CUSTOM|QUICK_REDUCE)'")
_SYMMETRIC = r"symm(etric)?_mem"
_SEGMENTS = r"PYTORCH_(CUDA_|HIP_)?ALLOC_CONF"


def _exports_segments(scene: Scene) -> Iterator[Sighting | Gap]:
    """Its source reports a CUDA error, the allocator's memory cannot be exported, and a rank has ended."""
    yield from both(both(said(scene, _FAILED), _expandable(scene)), first_end(scene))


def _expandable(scene: Scene) -> Iterator[Sighting]:
    yield from (one for one in variable(scene, _SEGMENTS) if "expandable_segments:true" in one.quote.lower())


def _spins(scene: Scene) -> Iterator[Sighting | Gap]:
    """Fused with what follows it or not, it spins for flags that peers write."""
    yield from both(all_in(scene, f"{CUSTOM_ALL_REDUCE}|{FUSED_ALL_REDUCE}"), spinning_or_unseen(scene))


def _diverted(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(all_in(scene, CUSTOM_ALL_REDUCE), diverted(scene))


def _is_the_first_choice(scene: Scene) -> Iterator[Sighting | Gap]:
    """Every rank waits for its GPU, which spins, nothing but PCIe is between them, and the engine says that it asks
    this all-reduce before any other. Where the host waits, no frame tells which one the GPUs are in."""
    cards = gpus(scene)
    if not isinstance(cards, Gap) and len(cards) > 1 and all(over_pcie(card) and spins(card) for card in cards):
        waiting = chain(all_in(scene, _WAITS_FOR_GPU), unseen_and_still(scene))
        yield from both(both(waiting, spinning(scene)), _chosen(scene))


def _chosen(scene: Scene) -> Iterator[Sighting]:
    """What the engine says of the ways that it has chosen for tensor parallel ranks, in their order."""
    for one in said(scene, r"all-reduce backends .*dispatch order.* group 'tp\b"):
        if _CHOICE.search(one.quote):
            yield one


def _sets_up(scene: Scene) -> Iterator[Sighting | Gap]:
    """Every rank is in the set-up of memory that others may write, which takes moments, and nobody moves."""
    if len(runners(scene)) > 1 and still(scene):
        yield from all_in(scene, _SET_UP)


def _off(scene: Scene) -> Iterator[Sighting]:
    """Memory that torch shares has a switch of its own, and so have fused kernels."""
    if in_place(scene, f"{_SYMMETRIC}|{FUSED_ALL_REDUCE}"):
        return
    if scene.bundle.option("disable-custom-all-reduce") is not None:
        yield Sighting("option: --disable-custom-all-reduce")


CAUSE = Cause(
    id="custom_allreduce",
    nature=Nature.DEVICE,
    title="the engine's own all-reduce over peer memory does not get through",
    clues=(
        decides("Did it fail to export memory of expandable segments, and end a rank?", _exports_segments),
        supports("Do GPUs spin, or nobody move where that is unseen, while every rank is in it?", _spins),
        supports("Is every rank in it while ACS, IOMMU or BAR1 is in the way of peers?", _diverted),
        supports(
            "Do GPUs spin over PCIe, with it the engine's first choice among all-reduces?", _is_the_first_choice
        ),
        supports("Is every rank in the set-up of memory for it, unmoved?", _sets_up),
        rules_out("Is it switched off?", _off),
        foresees("Are expandable segments on, whose memory it cannot export?", _expandable),
    ),
    advice=Advice(
        confirm=("Start once with --disable-custom-all-reduce (vLLM, SGLang): then NCCL does the work.",),
        work_around=(
            (
                "--disable-custom-all-reduce; for symmetric memory VLLM_ALLREDUCE_USE_SYMM_MEM=0; for fused kernels"
                " VLLM_ALLREDUCE_USE_FLASHINFER=0, in SGLang --enforce-disable-flashinfer-allreduce-fusion."
            ),
            "With expandable segments: leave expandable_segments:True out of PYTORCH_CUDA_ALLOC_CONF.",
        ),
        repair=("See what is in the way of peers: iommu=pt, ACS off on the bridges above the GPUs, BAR1 size.",),
    ),
    traps=(
        (
            "The option may only be the trigger: with ACS or a translating IOMMU every user of peer access hangs,"
            " NCCL and symmetric memory too."
        ),
        "It is chosen by number of ranks and by its own check of peers: two ranks may hang where four work.",
    ),
)
