"""A GPU, its firmware or its driver has failed: error events, a driver that does not answer, tasks stuck in it."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu
from firstlight.core.hosts import PIDS_A_NODE
from firstlight.core.look import ProcessLook, ThreadLook
from firstlight.core.vocabulary import GapReason
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.devices import runners
from firstlight.diagnose.failures import Kind, failed
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, gpus, kernel_said, said, threads

FATAL_XIDS = frozenset({8, 48, 62, 79, 95, 109, 119, 120, 140, 143})
"""Events after which a GPU or its channel does no further work (NVIDIA's catalogue of Xid errors). Those that a
program's own fault causes (13, 31, 43, 45) are left out."""
BAD_XIDS = frozenset({38, 44, 46, 56, 61, 63, 64, 66, 69, 74, 92, 94, 110, *range(144, 151), 154, 155, 156, 175})
"""Events that a GPU may survive: of its memory, its links, its firmware, and what it recommends."""
_SURVIVED = frozenset(f"Xid {number}" for number in BAD_XIDS)
_XID = r"NVRM: Xid"
_XID_NUMBER = re.compile(r"NVRM: Xid \(.*?\): (\d+)")
_ADDRESS_END = re.compile(r"\.\d$")
"""Xid lines leave out the function of a PCI address."""
_LOST = (
    r"NVRM:.*(fallen off the bus|GPU is lost|RmInitAdapter failed|timed? ?out.*\bGSP\b)"
    r"|SXid \(.*?\): \d+, Fatal|PCIe Bus Error: severity=Uncorrect\w+ \(Fatal\)"
)
"""NVIDIA's driver, its switches (SXid), and the PCIe port above a GPU."""
_OTHERS_DRIVERS = (
    r"amdgpu.*(ring \S+ timeout|GPU reset (begin|failed)|GPU hang|\bfatal error|RAS .*uncorrectable|out of sync"
    r"|HWS hang|preemption failed|MES .*(failed|timed? ?out)|lost from bus|device wedged"
    r"|qcm fence wait loop timeout|unrecoverable state)"
    r"|\b(xe|i915)\b.*(GPU HANG|wedged|engine reset|GT reset failed|device lost)"
)
_IN_THE_LOG = (
    r"uncorrectable (ECC|NVLink) error|(cuda|hip)ErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE"
    r"|\bGPU is lost\b|fallen off the bus|GPU requires reset|Unable to determine the device handle for GPU"
    r"|HW Exception by GPU node|hardware stack error"
)
"""What programs are told, where the kernel's log is not to be seen, as in most containers."""
_DRIVER = re.compile(
    r"\[(nvidia\w*|amdgpu|amdkfd|xe|i915)\]|\b(nv_|nvidia|uvm_|nvkms|rm_ioctl|os_acquire|amdgpu|kfd_|amdkfd|ttm_)"
)
_WAITS = re.compile(r"spin|wait|poll_for|sync")
_LOCKS = re.compile(r"\b_*(rwsem_|down\b|down_|mutex_lock|rt_mutex|percpu_down)")
_PINS = re.compile(r"pin_user_pages|os_lock_user_pages|get_user_pages|hmm_range")


def _events(scene: Scene) -> Iterator[Sighting | Gap]:
    """The kernel tells of an event after which a GPU of this server does not work on."""
    for one in _told(scene, FATAL_XIDS):
        if isinstance(one, Gap) or _is_ours(scene, one.quote):
            yield one


def _others(scene: Scene) -> Iterator[Sighting | Gap]:
    """The same of a GPU that may be somebody else's, or an event that a GPU may survive."""
    for one in _told(scene, FATAL_XIDS | BAD_XIDS):
        if isinstance(one, Gap) or one.what in _SURVIVED or not _is_ours(scene, one.quote):
            yield one


def _told(scene: Scene, numbers: frozenset[int]) -> Iterator[Sighting | Gap]:
    for one in kernel_said(scene, f"{_XID}|{_LOST}|{_OTHERS_DRIVERS}"):
        if isinstance(one, Gap):
            yield one
        elif found := _XID_NUMBER.search(one.quote):
            if int(found[1]) in numbers:
                yield one._replace(what=f"Xid {found[1]}")
        else:
            yield one._replace(what="the kernel's log tells of it")


def _is_ours(scene: Scene, told: str) -> bool:
    """Whether the line names a process of this server, or a GPU that one of its processes is on."""
    pids = {str(pid % PIDS_A_NODE) for pid in _pids(scene)}
    named = re.search(r"\bpid=(\d+)", told)
    if named and named[1] in pids:
        return True
    cards = gpus(scene)
    here = [] if isinstance(cards, Gap) else [card for card in cards if _used(scene, card)]
    return any(_ADDRESS_END.sub("", card.pci) in told for card in here if card.pci)


def _pids(scene: Scene) -> set[int]:
    return {one.pid for one in scene.standings} | {gone.id.pid for gone in scene.ended}


def _used(scene: Scene, card: Gpu) -> bool:
    """Whether a process of this server is on the GPU; it may be, where the driver names nobody."""
    if isinstance(card.processes, Gap):
        return True
    return any(one.here is True and one.pid in _pids(scene) for one in card.processes)


def _programs_say(scene: Scene) -> Iterator[Sighting]:
    yield from (one._replace(what="a program was told of it") for one in said(scene, _IN_THE_LOG))


def _ended_by_it(scene: Scene) -> Iterator[Sighting]:
    """A process ended as CUDA had no name for what is wrong."""
    yield from (one._replace(what="CUDA has no name for it") for one in failed(scene, Kind.DRIVER))


def _lost(scene: Scene) -> Iterator[Sighting | Gap]:
    """The driver has given a GPU of this server up."""
    cards = gpus(scene)
    if isinstance(cards, Gap):
        yield cards
        return
    for card in cards:
        given_up = re.search(r"lost|fallen off|requires? (a )?reset", card.fault, re.IGNORECASE)
        if given_up and _used(scene, card):
            yield Sighting(shortened(f"GPU {card.index}: {card.fault}"), what=f"GPU {card.index}")


def _stuck(scene: Scene) -> Iterator[Sighting | Gap]:
    """A thread is in the driver, in the kernel, at both looks, and cannot be interrupted there."""
    for one, thread in threads(scene):
        if thread.state != "D":
            continue
        if isinstance(thread.kernel, Gap) and not _in_driver(thread):
            yield thread.kernel
        elif _in_driver(thread) and _stayed(scene, one.process.id.pid, thread) and not _queues(scene, one, thread):
            told = " < ".join(_kernel(thread)[:3])
            yield Sighting(
                shortened(f"{scene.name(one.process.id.pid)}, state D, in the kernel: {told}"),
                (one.process.id.pid,),
                "the driver",
            )


def _spins(scene: Scene) -> Iterator[Sighting | Gap]:
    """A thread runs in the driver, in the kernel, and waits there for the GPU: at both looks, in the same place."""
    for one, thread in threads(scene):
        pid = one.process.id.pid
        if thread.state != "R" or not _in_driver(thread) or not _WAITS.search(_kernel(thread)[0]):
            continue
        then = _then(scene, pid, thread)
        if then is not None and then.state == "R" and _kernel(then) == _kernel(thread):
            told = " < ".join(_kernel(thread)[:3])
            yield Sighting(shortened(f"{scene.name(pid)} runs in the kernel: {told}"), (pid,), "the driver")


def _in_driver(thread: ThreadLook) -> bool:
    within = " ".join(_kernel(thread)[:6])
    return bool(_DRIVER.search(within)) and not _PINS.search(within)


def _queues(scene: Scene, look: ProcessLook, thread: ThreadLook) -> bool:
    """Whether it waits for a lock of the driver, which serves another process of the server that makes the same call:
    that one moves."""
    own = scene.standing(look.process.id.pid)
    others = (one for one in runners(scene) if own and one.pid != own.pid and one.stack[:1] == own.stack[:1])
    return bool(_LOCKS.search(" ".join(_kernel(thread)[:3]))) and any(one.moves for one in others)


def _kernel(thread: ThreadLook) -> tuple[str, ...]:
    """The kernel functions that it is in; only the innermost where no more may be seen."""
    if not isinstance(thread.kernel, Gap) and thread.kernel:
        return thread.kernel
    return () if isinstance(thread.wchan, Gap) or not thread.wchan else (thread.wchan,)


def _stayed(scene: Scene, pid: int, thread: ThreadLook) -> bool:
    """Whether the thread was in the driver at the first look, too, and its process did nothing else since."""
    then = _then(scene, pid, thread)
    standing = scene.standing(pid)
    moves = standing is not None and standing.moves
    return not moves and then is not None and then.state == thread.state and _in_driver(then)


def _then(scene: Scene, pid: int, thread: ThreadLook) -> ThreadLook | None:
    """The same thread at the first look; None where there are not two."""
    looks = scene.bundle.looks
    before = [one for each in looks[:-1][:1] for one in each.processes if one.process.id.pid == pid]
    return next((one for each in before for one in each.threads if one.tid == thread.tid), None)


def _silent(scene: Scene) -> Iterator[Sighting | Gap]:
    """The driver did not answer in time, and somebody is stuck in it."""
    look = scene.last
    refused = look.gpus if look else ()
    late = [card for card in refused if card.fault] if isinstance(refused, tuple) else []
    if isinstance(refused, Gap) and refused.reason is GapReason.TIMED_OUT:
        yield from both(
            [Sighting(shortened(f"the GPU driver did not answer: {refused.detail or 'timed out'}"))], _stuck(scene)
        )
    elif late:
        told = (Sighting(shortened(f"GPU {card.index}: {card.fault}")) for card in late)
        yield from both(told, _stuck(scene))


def _broken_memory(scene: Scene) -> Iterator[Sighting | Gap]:
    cards = gpus(scene)
    if isinstance(cards, Gap):
        yield cards
        return
    for card in cards:
        if isinstance(card.ecc_errors, int) and card.ecc_errors:
            yield Sighting(f"GPU {card.index}: {card.ecc_errors} uncorrected memory errors", what=f"GPU {card.index}")
        if card.fault or card.repair in {"pending", "failed"}:
            fault = card.fault or f"repair of its memory: {card.repair}"
            yield Sighting(shortened(f"GPU {card.index}: {fault}"), what=f"GPU {card.index}")


CAUSE = Cause(
    id="gpu_fault",
    nature=Nature.DEVICE,
    title="a GPU or its driver has failed ({what})",
    clues=(
        decides("Does the kernel's log tell of an error after which a GPU of this server does not work on?", _events),
        decides("Has the driver given a GPU of this server up?", _lost),
        supports("Does it tell of one on a GPU that may be somebody else's, or that a GPU may survive?", _others),
        supports("Was a program told that a GPU has failed?", _programs_say),
        supports("Did a process end as CUDA told of an unknown error (999)?", _ended_by_it),
        supports("Did the driver not answer, with a process stuck in it?", _silent),
        supports("Is a thread in the driver and cannot be interrupted, at both looks?", _stuck),
        supports("Does a thread spin in the driver's kernel module, at both looks in the same place?", _spins),
        foresees("Has a GPU a fault, uncorrected errors or a repair outstanding?", _broken_memory),
    ),
    advice=Advice(
        confirm=("timeout 10 nvidia-smi (it can hang itself); dmesg | grep -i -E 'xid|nvrm|amdgpu'.",),
        work_around=(
            (
                "Leave the GPU out: CUDA_VISIBLE_DEVICES. With Xid 8, start without CUDA graphs (--enforce-eager,"
                " --disable-cuda-graph, GGML_CUDA_DISABLE_GRAPHS=1)."
            ),
        ),
        repair=(
            "Reset the GPU (nvidia-smi --gpu-reset) or reboot; after Xid 79, 119 or 120 a power cycle may be needed.",
        ),
    ),
    traps=(
        "A process in state D or stuck in the driver cannot be killed: it keeps port and memory until the reboot.",
        "Xid 13, 31, 43 and 45 come from a program's own fault, and follow a kill.",
    ),
    explains=frozenset({"kernel_hang_sm", "nccl_p2p_pcie", "graph_replay"}),
)
