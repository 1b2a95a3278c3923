"""NCCL sets up NVLink multicast (NVLS) or memory across nodes over NVLink (MNNVL), and the set-up does not end."""

import re
from collections.abc import Iterator
from itertools import chain

from firstlight.core.gap import Gap
from firstlight.core.log import LogLine
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, rules_out, supports
from firstlight.diagnose.deaths import first_end
from firstlight.diagnose.devices import COMMUNICATOR, all_in, some_in, still, unseen_and_still
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, gpus, said, variable

_SETS_UP = (
    r"ncclNvls|nvls(Init|Alloc|Group|Conn|Share)|ncclMnnvl|cuMulticast|mnnvl|multicast|mcast|symm_mem.*rendezvous"
)
_REFUSED = r"nvls\.cc.*(cuda failure|cuda error|fail)|bind NVLink SHARP|(cuMulticast\w+|mnnvl).*(fail|error)"
_NCCL_LINE = re.compile(r"\bNCCL (INFO|WARN)\b")
_ABOUT = re.compile(r"\b(NVLS|MNNVL)\b|multicast", re.IGNORECASE)
_DONE = re.compile(r"Init COMPLETE")


def _last_words(scene: Scene) -> Iterator[Sighting | Gap]:
    """What NCCL said last, of some rank, is about NVLS or MNNVL, no communicator is complete, and ranks are still in
    the making of it."""
    within = chain(all_in(scene, f"{COMMUNICATOR}|{_SETS_UP}"), unseen_and_still(scene))
    yield from both(within, _ends_in_nvls(scene))


def _ends_in_nvls(scene: Scene) -> Iterator[Sighting]:
    for tail in scene.bundle.logs:
        told = [line for line in tail.lines if _NCCL_LINE.search(line.message)]
        if told and _ABOUT.search(told[-1].message) and not _complete_after(told):
            who = f"{tail.source}: " if tail.source else ""
            yield Sighting(shortened(f"NCCL's last words: {who}{told[-1].message}"))


def _complete_after(told: list[LogLine]) -> bool:
    return any(_DONE.search(line.message) for line in told[-3:])


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    """NCCL tells that the driver refused multicast, and a rank has ended or is still at it."""
    within = chain(some_in(scene, f"{COMMUNICATOR}|{_SETS_UP}"), unseen_and_still(scene))
    yield from both(said(scene, _REFUSED), chain(first_end(scene), within))


def _everywhere(scene: Scene) -> Iterator[Sighting | Gap]:
    """The driver binds memory to a multicast team until every GPU of it has come."""
    if still(scene):
        yield from all_in(scene, _SETS_UP)


def _without_fabric(scene: Scene) -> Iterator[Sighting | Gap]:
    """Somebody sets up multicast or MNNVL, and the GPUs are in no NVLink fabric."""
    yield from both(some_in(scene, _SETS_UP), _no_fabric(scene))


def _no_fabric(scene: Scene) -> Iterator[Sighting | Gap]:
    cards = gpus(scene)
    if isinstance(cards, Gap):
        yield cards
        return
    for card in cards:
        if isinstance(card.fabric, str) and not card.fabric.startswith("completed"):
            yield Sighting(f"GPU {card.index}: state of the NVLink fabric: {shortened(card.fabric)}")


def _off(scene: Scene) -> Iterator[Sighting]:
    """Switched off for NCCL, and nobody stands in it."""
    off = [one for one in variable(scene, "NCCL_NVLS_ENABLE|NCCL_MNNVL_ENABLE") if one.quote.endswith("=0")]
    if len(off) == 2:
        yield from off


CAUSE = Cause(
    id="nccl_nvls",
    nature=Nature.DEVICE,
    title="setting up NVLink multicast (NVLS) or memory across nodes (MNNVL) does not end",
    clues=(
        supports("Is it the last that NCCL said, with no communicator complete and all ranks in it?", _last_words),
        supports("Does somebody set it up where the GPUs are in no NVLink fabric?", _without_fabric),
        supports("Was multicast refused, and has a rank ended of it or is at it?", _refused),
        supports("Does every rank stand in the set-up itself, unmoved?", _everywhere),
        rules_out("Are NVLS and MNNVL switched off (NCCL_NVLS_ENABLE=0, NCCL_MNNVL_ENABLE=0)?", _off),
    ),
    advice=Advice(
        confirm=(
            "NCCL_DEBUG=INFO shows the last step; then start with NCCL_NVLS_ENABLE=0, then NCCL_MNNVL_ENABLE=0.",
        ),
        work_around=("NCCL_NVLS_ENABLE=0; on nodes that share no NVLink, NCCL_MNNVL_ENABLE=0.",),
        repair=(
            "See that fabric manager (and on NVL systems IMEX: nvidia-imex-ctl -N) runs and matches the driver.",
            "Try another NCCL: there are reports of 2.30.4 and later on B300.",
        ),
    ),
    traps=("Without NCCL_DEBUG this looks like broken peer access or a shim: all ranks in ncclCommInitRank.",),
)
