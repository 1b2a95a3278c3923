"""What the helper programs say, understood: their private lines, and the records that become of them."""

import re
from itertools import islice
from typing import TypeVar

import msgspec

from firstlight import procfs
from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu, GpuProcess
from firstlight.core.vocabulary import GapReason

_V = TypeVar("_V")

DEVICE_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/renderD", "/dev/dxg")
TEXT_MAX = 200
PROCESSES_MAX = 1024
FILES_MAX = 20_000

_REASONS = {
    3: GapReason.NOT_SUPPORTED,
    4: GapReason.NO_PERMISSION,
    13: GapReason.NOT_SUPPORTED,
}
"""By NVML's numbers: not supported, no permission, function not found (a driver older than the question)."""
GIVEN_UP = (15, 16)


class Refused(msgspec.Struct, frozen=True):
    """A question that the driver did not answer, its words and NVML's number for it."""

    refused: str
    code: int


NOBODY_ASKED = Refused("not told by this kind of card", 3)


class Card(msgspec.Struct):
    """One GPU as a helper tells it."""

    index: int
    name: str | Refused
    pci: str | Refused
    utilisation: float | Refused
    memory_activity: float | Refused
    power_mw: float | Refused
    power_limit_mw: float | Refused
    sm_clock_mhz: float | Refused
    memory_used: int | Refused
    memory_total: int | Refused
    processes: list[tuple[int, int | None]] | Refused
    ecc: int | Refused
    peers: list[tuple[int, str | Refused]]
    capability: tuple[int, int] | Refused = NOBODY_ASKED
    architecture: str | Refused = NOBODY_ASKED
    bar1: int | Refused = NOBODY_ASKED
    repair: str | Refused = NOBODY_ASKED
    fabric: str | Refused = NOBODY_ASKED
    nvlinks_up: list[bool] | Refused = NOBODY_ASKED


class Line(msgspec.Struct):
    """One line of a helper; which field is set says what it is."""

    asking: str = ""
    gpu: int = -1
    count: int = -1
    card: Card | None = None
    driver: str | Refused = ""
    cuda: int | Refused = 0
    missing: str = ""
    failed: str = ""
    end: bool = False


_FIELDS_WITH_GAPS = tuple(field.name for field in msgspec.structs.fields(Gpu) if isinstance(field.default, Gap))

decoder = msgspec.json.Decoder(Line)


def gpu_of(card: Card, vendor: str) -> Gpu:
    """The record of one GPU; a gap for every field that the driver did not tell."""

    def seen(value: _V | Refused, what: str) -> _V | Gap:
        return _gap(value, f"{what} of GPU {card.index}") if isinstance(value, Refused) else value

    links = card.nvlinks_up
    return Gpu(
        index=card.index,
        name=_words(card.name),
        vendor=vendor,
        architecture=_architecture(card),
        utilisation=seen(card.utilisation, "utilisation"),
        memory_activity=seen(card.memory_activity, "memory activity"),
        power_w=seen(_watts(card.power_mw), "power"),
        power_limit_w=seen(_watts(card.power_limit_mw), "power limit"),
        sm_clock_mhz=seen(card.sm_clock_mhz, "clock"),
        memory_used_bytes=seen(card.memory_used, "memory in use"),
        memory_total_bytes=seen(card.memory_total, "memory"),
        processes=seen(_processes(card), "processes"),
        ecc_errors=seen(card.ecc, "memory errors"),
        peers=tuple((index, word[:TEXT_MAX]) for index, word in card.peers if isinstance(word, str)),
        fabric=seen(card.fabric, "NVLink fabric"),
        nvlinks=seen(links if isinstance(links, Refused) else len(links), "NVLinks"),
        nvlinks_down=seen(links if isinstance(links, Refused) else links.count(False), "NVLinks"),
        pci=pci_address(_words(card.pci)),
        fault=_fault(card),
        repair=seen(card.repair, "memory repair"),
        bar1_bytes=seen(card.bar1, "BAR1 size"),
    )


def unseen(index: int, vendor: str, gap: Gap, fault: str = "") -> Gpu:
    """A GPU that the driver counts and did not answer for."""
    bare = Gpu(index=index, name="", vendor=vendor, fault=fault)
    return msgspec.structs.replace(bare, **dict.fromkeys(_FIELDS_WITH_GAPS, gap))


def pci_address(told: str) -> str:
    """A PCI address as /sys has it, empty if it is none. NVML says "00000000:3B:00.0", the kernel "0000:3b:00"."""
    match = re.fullmatch(r"0*([0-9a-f]{1,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", told.strip().lower())
    if not match:
        return ""
    domain, bus, device, function = match.groups()
    return f"{domain.zfill(4)}:{bus}:{device}.{function or 0}"


def here(pid: int, device_files: tuple[str, ...] = DEVICE_FILES) -> bool | Gap:
    """Whether a process of this number can be seen from here and has a GPU's device file open."""
    try:
        return any(link.target.startswith(device_files) for link in islice(procfs.fds(pid), FILES_MAX))
    except FileNotFoundError:
        return False
    except OSError as error:
        return procfs.gap_from(error, "device files", pid)


def _gap(refused: Refused, what: str) -> Gap:
    reason = _REASONS.get(refused.code, GapReason.FAILED)
    return Gap(what=what, reason=reason, detail=f"the driver says: {refused.refused[:TEXT_MAX]}")


def _words(value: str | Refused) -> str:
    return "" if isinstance(value, Refused) else value[:TEXT_MAX]


def _architecture(card: Card) -> str:
    if isinstance(card.capability, Refused):
        return _words(card.architecture)
    major, minor = card.capability
    return f"{major}{minor}"


def _watts(milliwatts: float | Refused) -> float | Refused:
    return milliwatts if isinstance(milliwatts, Refused) else milliwatts / 1000


def _processes(card: Card) -> tuple[GpuProcess, ...] | Refused:
    if isinstance(card.processes, Refused):
        return card.processes
    return tuple(_process(pid, used) for pid, used in card.processes[:PROCESSES_MAX])


def _process(pid: int, used: int | None) -> GpuProcess:
    if used is None:
        return GpuProcess(pid=pid, here=here(pid))
    return GpuProcess(pid=pid, memory_bytes=used, here=here(pid))


def _fault(card: Card) -> str:
    """The driver's words where it gives a GPU up. It says so to every question about it."""
    values = (getattr(card, name) for name in card.__struct_fields__)
    lost = next((one for one in values if isinstance(one, Refused) and one.code in GIVEN_UP), None)
    return lost.refused[:TEXT_MAX] if lost else ""
