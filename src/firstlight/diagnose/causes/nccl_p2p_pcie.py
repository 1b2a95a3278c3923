"""What one GPU writes to another over PCIe does not arrive, although the driver says that it would: ACS or the IOMMU
diverts it, or the BAR1 window does not cover it. Kernels that wait for a peer's flag then spin for ever.

Only a copy that is checked tells for certain; a bundle holds none, so this is never established.
"""

import re
from collections.abc import Iterator
from itertools import chain

from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, foresees, speaks_against, supports
from firstlight.diagnose.deaths import first_end
from firstlight.diagnose.devices import (
    COLLECTIVE,
    COMMUNICATOR,
    CUSTOM_ALL_REDUCE,
    FUSED_ALL_REDUCE,
    IOMMU,
    all_in,
    complete,
    diverted,
    in_place,
    over_pcie,
    runners,
    some_in,
    spinning,
    spinning_or_unseen,
    spins,
    still,
    unseen_and_still,
)
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, gpus, kernel_said, lines, said, stands_in, variable

_EXCHANGE = f"{COLLECTIVE}|{CUSTOM_ALL_REDUCE}|{FUSED_ALL_REDUCE}"
_PLACES = r"\((pynccl|cuda_communicator|communication_op|quick_all_reduce)\.py"
_DRIVES = r"synchronize ?\(|^cu(da)?(Stream|Event|Device|Ctx)(Synchronize|Query)|ncclGroupEnd|ncclCommInitAll|^ggml_"
_WAITS_FOR_GPU = (
    r"^\S*synchronize\w* ?\(|^(cu|cuda|hip)(Stream|Event|Device|Ctx)(Synchronize|Query)|^(cu|cuda|hip)GraphLaunch"
    r"|^replay \(graphs\.py"
)
_BESIDE_NCCL = f"{CUSTOM_ALL_REDUCE}|{FUSED_ALL_REDUCE}"
_CHECKS = r"^(gpu_p2p_access_check|can_actually_p2p|_can_p2p) \("
_COPIES = r"^(producer|consumer) \(custom_all_reduce_utils\.py"
_IOMMU_FAULT = r"IO_PAGE_FAULT|DMAR: .*fault addr|arm-smmu.*(fault|event)"
_NO_ACCESS = (
    r"peer access is not supported between|(cuda|hip)ErrorPeerAccessUnsupported|CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
    r"|mapping of buffer object failed"
)
_IOMMU_WARNING = r"missing \W*iommu=pt"


def _spins_for_a_peer(scene: Scene) -> Iterator[Sighting | Gap]:
    """GPUs spin in an exchange, and the way between them is known to swallow writes."""
    yield from both(both(all_in(scene, f"{_EXCHANGE}|{_PLACES}"), spinning_or_unseen(scene)), diverted(scene))


def _all_spin(scene: Scene) -> Iterator[Sighting | Gap]:
    """Every rank waits for its GPU, and each of these spins: what they exchange, the host has long started."""
    cards = gpus(scene)
    busy = [] if isinstance(cards, Gap) else [card for card in cards if spins(card) and over_pcie(card)]
    if len(busy) >= len(runners(scene)) > 1 and still(scene):
        waiting = chain(all_in(scene, _WAITS_FOR_GPU), unseen_and_still(scene))
        yield from both(both(waiting, spinning(scene)), diverted(scene))


def _spins_in_one_process(scene: Scene) -> Iterator[Sighting | Gap]:
    """One process drives several GPUs (llama.cpp, tests of NCCL), which spin: it waits for them, or starts what they
    exchange."""
    busy = [one for one in spinning(scene) if isinstance(one, Sighting)]
    if len(runners(scene)) == 1 and len(busy) > 1 and complete(scene):
        yield from both(both(some_in(scene, f"{_EXCHANGE}|{_DRIVES}"), busy), diverted(scene))


def _connects(scene: Scene) -> Iterator[Sighting | Gap]:
    """Every rank is making a communicator, and more than a translating IOMMU stands in the way of peers."""
    yield from both(all_in(scene, COMMUNICATOR), (one for one in diverted(scene) if _is_sure(one)))


def _is_sure(one: Sighting | Gap) -> bool:
    return isinstance(one, Gap) or one.what != IOMMU


def _lamport(scene: Scene) -> Iterator[Sighting | Gap]:
    """GPUs spin in a fused all-reduce, which trusts the driver's word for peer access."""
    yield from both(both(all_in(scene, FUSED_ALL_REDUCE), spinning(scene)), _claimed(scene))


def _claimed(scene: Scene) -> Iterator[Sighting | Gap]:
    cards = gpus(scene)
    if isinstance(cards, Gap):
        yield cards
        return
    for card in cards:
        if _claims(card):
            yield Sighting(
                f"GPU {card.index}: the driver claims peer access, over PCIe alone",
                what="only the driver's word vouches for it",
            )


def _claims(card: Gpu) -> bool:
    return over_pcie(card) and any(word == "ok" for _, word in card.peers)


def _warned(scene: Scene) -> Iterator[Sighting | Gap]:
    """RCCL tells how the IOMMU is set, and warns of what may come of it; every rank is where peers are first used."""
    told = (line for line in lines(scene.bundle) if re.search(_IOMMU_WARNING, line.message, re.IGNORECASE))
    warnings = (Sighting(shortened(f"log: {line.message}"), what=IOMMU) for line in told)
    yield from both(warnings, all_in(scene, f"{COMMUNICATOR}|{_EXCHANGE}"))


def _iommu_refuses(scene: Scene) -> Iterator[Sighting | Gap]:
    """The IOMMU tells that it did not let through what a GPU of this machine wrote, and ranks meet or connect."""
    cards = gpus(scene)
    if isinstance(cards, Gap):
        yield cards
        return
    own = re.compile(
        "|".join(rf"\b{re.escape(card.pci.partition(':')[2])}\b" for card in cards if card.pci) or r"\Z."
    )
    told = kernel_said(scene, _IOMMU_FAULT)
    refused = (
        one if isinstance(one, Gap) else one._replace(what="the IOMMU refuses it")
        for one in told
        if isinstance(one, Gap) or own.search(one.quote)
    )
    yield from both(refused, all_in(scene, f"{COMMUNICATOR}|{_EXCHANGE}|{_PLACES}"))


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    """CUDA refuses to map what a peer has given out, or access between two GPUs, and a rank ended of it."""
    told = (one._replace(what="CUDA refuses it") for one in said(scene, _NO_ACCESS))
    yield from both(told, first_end(scene))


def _check_hangs(scene: Scene) -> Iterator[Sighting | Gap]:
    """The engine copies from GPU to GPU to see whether that works, and the copy does not end."""
    moving = {one.pid for one in scene.standings if one.moves}
    copying = (
        one if isinstance(one, Gap) else one._replace(what="a copy that the engine tries does not end")
        for one in stands_in(scene, _COPIES)
        if isinstance(one, Gap) or not moving & set(one.pids)
    )
    if still(scene):
        yield from both(copying, some_in(scene, _CHECKS))


def _switched_off(scene: Scene) -> Iterator[Sighting]:
    """NCCL is told not to use peer access, and nobody is in a kernel that does not ask NCCL."""
    if not in_place(scene, _BESIDE_NCCL):
        yield from (one for one in variable(scene, "NCCL_P2P_DISABLE") if one.quote.endswith("=1"))


CAUSE = Cause(
    id="nccl_p2p_pcie",
    nature=Nature.DEVICE,
    title="what GPUs write to each other over PCIe may not arrive: {what}",
    clues=(
        supports("Do GPUs spin in an exchange while something diverts peer traffic?", _spins_for_a_peer),
        supports("Do all ranks wait for GPUs, which all spin, while something diverts peer traffic?", _all_spin),
        supports("Do GPUs of one process spin while something diverts peer traffic?", _spins_in_one_process),
        supports("Do all ranks connect GPUs while ACS or BAR1 is in the way?", _connects),
        supports("Do GPUs spin in a fused all-reduce that trusts the driver's claim of peer access?", _lamport),
        supports("Does RCCL warn of the IOMMU while ranks connect?", _warned),
        supports("Does the IOMMU refuse what a GPU writes while ranks meet?", _iommu_refuses),
        supports("Was access to a peer's memory refused, and did a process end?", _refused),
        supports("Does the engine's own check of peer copies not come back?", _check_hangs),
        speaks_against("Is peer access switched off for NCCL (NCCL_P2P_DISABLE=1)?", _switched_off),
        foresees("Does something divert what GPUs write to each other over PCIe?", diverted),
    ),
    advice=Advice(
        confirm=(
            (
                "Start with NCCL_P2P_DISABLE=1 and, in vLLM and SGLang, --disable-custom-all-reduce: both, since each"
                " leaves the other's peer access on."
            ),
            (
                "Copy ones from GPU to GPU with cudaMemcpyPeer or torch and read them back: zeros prove it. Give it a"
                " time limit: a peer copy that hangs can leave the GPUs wedged."
            ),
        ),
        work_around=(
            "NCCL_P2P_DISABLE=1 with --disable-custom-all-reduce.",
            (
                "vLLM besides: VLLM_ALLREDUCE_USE_SYMM_MEM=0 and VLLM_ALLREDUCE_USE_FLASHINFER=0; SGLang:"
                " --enforce-disable-flashinfer-allreduce-fusion. VLLM_SKIP_P2P_CHECK=0 and --enable-p2p-check"
                " make the engine test peers rather than trust the driver."
            ),
        ),
        repair=(
            "Put the IOMMU into passthrough (iommu=pt on the kernel's command line), or off.",
            "Clear ACS on the bridges above the GPUs (in the BIOS, or setpci ECAP_ACS+0x6.w=0000 on each).",
            "With a patched peer-to-peer driver: Resizable BAR on in the BIOS, so that BAR1 covers the memory.",
        ),
    ),
    traps=(
        'The driver\'s "P2P: OK" is a claim; nvidia-smi topo -p2p shows the same claim.',
        "That the stall goes away with --disable-custom-all-reduce does not make that all-reduce the cause.",
        "NCCL_P2P_DISABLE does not reach fused kernels and symmetric memory, which go on using peer access.",
    ),
)
