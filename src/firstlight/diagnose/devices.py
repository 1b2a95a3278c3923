"""The questions about GPUs and the ways between them that several causes ask. Pure.

A thread's place is its Python stack and its native one together: which library waits often decides, and Python frames
alone mislead.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu
from firstlight.core.vocabulary import Role
from firstlight.core.words import size
from firstlight.diagnose.clues import Sighting
from firstlight.diagnose.compare import Stacks
from firstlight.diagnose.places import first
from firstlight.diagnose.quotes import outwards, shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import gpus
from firstlight.diagnose.standing import Standing

BUSY_PERCENT = 90
IDLE_MEMORY_PERCENT = 1
_PATCHED_SINCE = (80,)
LOW_POWER_SHARE = 0.4
"""Busy GPUs that draw no more of their power limit only wait: reports of spins have 15 to 40 %."""
LOW_POWER_W = 30.0
"""Where no limit is told: reports of chips that spin have 15 to 25 W."""
POLLING_CPU = 0.25
"""Cores that the helper threads of a rank may use: half of what a process is said to spin from."""

COMMUNICATOR = r"n?r?cclCommInit|ncclCommSplit|CommInitRank|init[NH]CCLComm|[NH]CCLComm::create"
COLLECTIVE = (
    r"^\S*(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|bcast|barrier|ncclSend|ncclRecv|isend|irecv"
    r"|(intranode|internode|low_latency)_(dispatch|combine))\w* ?\(|^(dispatch|combine) \(buffer\.py"
)
"""Where ranks meet, exchanges between experts (DeepEP) included."""
CUSTOM_ALL_REDUCE = (
    r"custom_?all_?reduce|custom_ar\b|cross_device_reduce|ca_comm|(one|two)_shot_all_reduce"
    r"|symm(etric)?_mem|quick_?all_?reduce|mscclpp"
)
"""The engines' own all-reduce (ROCm's quick one, too), torch's over symmetric memory, and FlashInfer's: none of them
asks NCCL."""
IOMMU = "the IOMMU translates it"
FUSED_ALL_REDUCE = (
    r"all_?reduce_?(fusion|rms|norm|residual|add)|(qk|rms|add)_?norm_?fusion|fused_?all_?reduce|lamport"
)


@lru_cache(maxsize=1)
def runners(scene: Scene) -> tuple[Standing, ...]:
    """Who runs the model: ranks, else the engine itself, else everybody but helpers and compilers."""
    there = [one for one in scene.standings if one.state not in "ZX"]
    ranked = [one for one in there if one.rank >= 0 or one.look.process.role is Role.WORKER]
    engines = [one for one in there if one.look.process.role is Role.ENGINE]
    others = [one for one in there if one.look.process.role not in {Role.HELPER, Role.COMPILER}]
    return tuple(ranked or engines or others)


def complete(scene: Scene) -> bool:
    """Whether nobody who runs the model, on any machine, has ended or is stopped: else the others only wait for that
    one."""
    return not scene.whole.deaths and not any(one.stopped for one in runners(scene.whole))


def still(scene: Scene) -> bool:
    """Whether nobody who runs the model, on any machine, moves, and no compiler works for them."""
    compilers = (one for one in scene.whole.standings if one.look.process.role is Role.COMPILER)
    return not any(_gets_on(one) and not _waits_busily(scene, one) for one in (*runners(scene.whole), *compilers))


def _gets_on(one: Standing) -> bool:
    """Whether it moves. Helper threads of libraries poll all their life: where every stack stays and nothing is read,
    written or filled, the little that they compute is no movement, and a whole core would be none, either."""
    change = one.change
    polls = change is not None and change.stacks is Stacks.UNCHANGED and not change.moved and change.cpu < POLLING_CPU
    return one.moves and not (polls and one.look.process.role is not Role.COMPILER)


def _waits_busily(scene: Scene, one: Standing) -> bool:
    """Whether it burns CPU out of sight while the GPUs of all who run the model spin: as CUDA waits for one."""
    cards = gpus(scene)
    if one.change is None or not one.change.may_spin or isinstance(cards, Gap):
        return False
    return sum(map(spins, cards)) >= len(runners(scene)) > 0


@lru_cache(maxsize=64)
def in_place(scene: Scene, pattern: str) -> tuple[Standing, ...]:
    """Those who run the model and stand in a frame that matches, as "function (file:line)"."""
    return tuple(one for one in runners(scene) if _at(one, pattern) is not None)


def elsewhere(scene: Scene, pattern: str) -> tuple[Standing, ...]:
    """Those who run the model, whose stack was seen, and who do not stand in a frame that matches."""
    return tuple(one for one in runners(scene) if one.words and _at(one, pattern) is None)


def quoted(scene: Scene, those: Iterable[Standing], pattern: str = "") -> Iterator[Sighting]:
    """Where each of them stands, from the frame that matches outwards."""
    for one in those:
        told = outwards(one.words, _at(one, pattern) or 0)
        yield Sighting(shortened(f"{scene.name(one.pid)}: {told}"), (one.pid,))


def all_in(scene: Scene, pattern: str) -> Iterator[Sighting | Gap]:
    """Everybody who runs the model stands there, as far as their stacks could be seen, and none has ended. They are
    two or more on all machines, or one here whose peers are elsewhere."""
    those = in_place(scene.whole, pattern)
    everybody = runners(scene.whole)
    hidden = [one for one in everybody if is_hidden(scene, one)]
    several = len(everybody) > 1 or scene.whole.bundle.nodes > 1
    if several and len(those) >= len(hidden) and len(those) + len(hidden) == len(everybody) and complete(scene):
        yield from quoted(scene, in_place(scene, pattern), pattern)
    yield from unseen_places(scene)


def is_hidden(scene: Scene, one: Standing) -> bool:
    """Whether it cannot be seen where it stands, and it does not move: as far as one can tell it does as the others
    do."""
    rests = not one.moves or _waits_busily(scene, one)
    return not one.words and rests and one.thread is not None and isinstance(one.thread.stack, Gap)


def some_in(scene: Scene, pattern: str) -> Iterator[Sighting | Gap]:
    """Somebody who runs the model stands there."""
    yield from quoted(scene, in_place(scene, pattern), pattern)
    yield from unseen_places(scene)


def unseen_and_still(scene: Scene) -> Iterator[Sighting]:
    """Nobody who runs the model moves, and none of their stacks could be seen."""
    those = runners(scene)
    if those and scene.whole.changes and still(scene) and all(is_hidden(scene, one) for one in those):
        yield Sighting("nobody who runs the model moves, and where they stand could not be seen")


def unseen_places(scene: Scene) -> Iterator[Gap]:
    """What kept a stack of those who run the model from being seen."""
    for one in runners(scene):
        if one.thread and isinstance(one.thread.stack, Gap):
            yield one.thread.stack


def unseen_native(scene: Scene) -> Iterator[Gap]:
    """What kept native frames of those who run the model from being seen."""
    for one in runners(scene):
        if one.thread and isinstance(one.thread.native, Gap):
            yield one.thread.native


def _at(one: Standing, pattern: str) -> int | None:
    return _first(one.words, pattern) if pattern else None


@lru_cache(maxsize=4096)
def _first(words: tuple[str, ...], pattern: str) -> int | None:
    """Most ranks stand alike, and many causes ask for the same places."""
    return first(words, re.compile(pattern, re.IGNORECASE))


def spinning(scene: Scene) -> Iterator[Sighting | Gap]:
    """GPUs that are busy without working: a kernel that waits for a flag."""
    cards = gpus(scene)
    if isinstance(cards, Gap):
        yield cards
        return
    for card in cards:
        if spins(card):
            yield Sighting(_load(card))


def spinning_or_unseen(scene: Scene) -> Iterator[Sighting | Gap]:
    """As above; where no driver tells what GPUs do, that nobody who runs the model moves."""
    cards = gpus(scene)
    hidden = isinstance(cards, Gap) or (bool(cards) and all(isinstance(card.utilisation, Gap) for card in cards))
    if hidden and scene.whole.changes and still(scene):
        yield Sighting("nobody who runs the model moves; what GPUs do could not be seen")
    else:
        yield from spinning(scene)


def spins(card: Gpu) -> bool:
    """Whether a kernel is resident, and neither memory nor power tells of work."""
    if isinstance(card.utilisation, Gap) or card.utilisation < BUSY_PERCENT:
        return False
    rests = not isinstance(card.memory_activity, Gap) and card.memory_activity <= IDLE_MEMORY_PERCENT
    return rests or (not isinstance(card.power_w, Gap) and card.power_w <= _low_power(card))


def _low_power(card: Gpu) -> float:
    """Chips that share their power with a CPU tell of no limit (GB10)."""
    return LOW_POWER_W if isinstance(card.power_limit_w, Gap) else LOW_POWER_SHARE * card.power_limit_w


def _load(card: Gpu) -> str:
    power = "" if isinstance(card.power_w, Gap) else f" at {card.power_w:.0f} W"
    limit = "" if isinstance(card.power_limit_w, Gap) or not power else f" of {card.power_limit_w:.0f} W"
    memory = "" if isinstance(card.memory_activity, Gap) else f", memory {card.memory_activity:.0f} % active"
    return f"GPU {card.index}: {card.utilisation:.0f} % busy{power}{limit}{memory}"


def over_pcie(card: Gpu) -> bool:
    """Whether nothing but PCIe leads from this GPU to others."""
    linked = not isinstance(card.nvlinks, Gap) and not isinstance(card.nvlinks_down, Gap)
    bridged = linked and card.nvlinks > card.nvlinks_down  # type: ignore[operator]
    switched = not isinstance(card.fabric, Gap) and card.fabric.startswith("completed")
    return not bridged and not switched


def diverted(scene: Scene) -> Iterator[Sighting | Gap]:
    """What may swallow or divert what one GPU writes to another over PCIe, where there is no other way."""
    cards = gpus(scene)
    if isinstance(cards, Gap):
        yield cards
        return
    there = [card for card in cards if over_pcie(card)]
    if len(there) < 2:
        return
    topology = scene.bundle.host.topology
    if not isinstance(topology.acs, Gap) and topology.acs:
        bridges = ", ".join(topology.acs[:4])
        yield Sighting(
            shortened(f"PCIe bridges above GPUs redirect peer traffic (ACS): {bridges}"), what="ACS redirects it"
        )
    if topology.iommu == "on":
        yield Sighting("the IOMMU translates what devices write (not in passthrough mode)", what=IOMMU)
    yield from (_narrow(card) for card in there if _claims_too_much(card, topology.bar1_bytes))
    yield from (one for one in (topology.acs, topology.iommu) if isinstance(one, Gap))


def _claims_too_much(card: Gpu, smallest: int | Gap) -> bool:
    """The driver claims peer access although others see less of the card's memory than it has.

    Only where a driver goes through BAR1 for peers, as one does that was patched for GeForce: as NVIDIA ships it, it
    claims none over PCIe for those since Ampere. For other cards it has a way that BAR1 does not bound.
    """
    if "GeForce" not in card.name or version(card.architecture) < _PATCHED_SINCE:
        return False
    bar1 = card.bar1_bytes if not isinstance(card.bar1_bytes, Gap) else smallest
    claims = any(word == "ok" for _, word in card.peers)
    known = not isinstance(bar1, Gap) and not isinstance(card.memory_total_bytes, Gap)
    return claims and known and bar1 < card.memory_total_bytes  # type: ignore[operator]


def _narrow(card: Gpu) -> Sighting:
    bar1 = "" if isinstance(card.bar1_bytes, Gap) else f" ({size(card.bar1_bytes)})"
    return Sighting(
        f"GPU {card.index}: the driver claims peer access, and its BAR1 window{bar1} is smaller than its memory",
        what="the BAR1 window is too small for it",
    )


def version(text: str) -> tuple[int, ...]:
    """ "2.27.5" as numbers, for comparison; empty if it is none."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()
