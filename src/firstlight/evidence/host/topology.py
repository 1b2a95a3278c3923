"""Whether GPUs can reach each other over PCIe: IOMMU, ACS of the bridges above them, BAR1; no driver is asked.

Price: reads. PCI classes and the ACS capability from the PCI Express base specification (7.7.11 in revision 5.0),
files from Documentation/ABI/testing/sysfs-bus-pci of the kernel. Inside a virtual machine this is the virtual
topology: what the host's bridges do cannot be seen from there.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.host import Topology
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.host import sysfs

GPUS_MAX = 64
BRIDGES_MAX = 256

_NVIDIA, _AMD = 0x10DE, 0x1002
_CLASSES = frozenset({0x0300, 0x0302, 0x0380, 0x1200})
"""VGA, 3D controller, other display controller, processing accelerator."""
_CONFIG_BYTES = 4096
_CONFIG_WITHOUT_RIGHTS = 64
_EXTENDED_AT = 0x100
_ACS = 0x000D
_SOURCE_VALIDATION, _REQUEST_REDIRECT = 0x1, 0x4
_BAR1 = {_NVIDIA: 1, _AMD: 0}
"""Which row of `resource` is the window on the GPU's memory that its peers use."""


class PciGpu(NamedTuple):
    """A GPU on the PCI bus: its folder, with those of all bridges above it as parents, and its vendor."""

    folder: Path
    vendor: int


def topology(sys_root: Path = Path("/sys"), kernel_command: Sequence[str] = ()) -> Topology:
    """What /sys tells of the ways between GPUs."""
    try:
        gpus = find_gpus(sys_root)
    except OSError as error:
        gap = Gap(what="PCI devices", reason=GapReason.NOT_SUPPORTED, detail=str(error))
        return Topology(iommu=gap, acs=gap, bar1_bytes=gap)
    return Topology(iommu=iommu(sys_root, gpus, kernel_command), acs=acs(gpus), bar1_bytes=bar1_bytes(gpus))


def find_gpus(sys_root: Path) -> list[PciGpu]:
    """NVIDIA's and AMD's GPUs. Raises OSError."""
    found = []
    for entry in sorted((sys_root / "bus" / "pci" / "devices").iterdir()):
        vendor, class_ = _hex(entry / "vendor"), _hex(entry / "class") >> 8
        if vendor in _BAR1 and class_ in _CLASSES:
            found.append(PciGpu(entry.resolve(), vendor))
    return found[:GPUS_MAX]


def iommu(sys_root: Path, gpus: Sequence[PciGpu], kernel_command: Sequence[str]) -> str | Gap:
    """ "off", "passthrough" (devices address memory as it is) or "on" (their addresses are translated)."""
    try:
        if not any((sys_root / "class" / "iommu").iterdir()):
            return "off"
    except FileNotFoundError:
        return "off"
    except OSError as error:
        return Gap(what="IOMMU", reason=GapReason.FAILED, detail=str(error))
    types = {sysfs.text(gpu.folder / "iommu_group" / "type") for gpu in gpus} - {""}
    if types:
        return "passthrough" if types == {"identity"} else "on"
    return "passthrough" if {"iommu=pt", "iommu.passthrough=1"} & set(kernel_command) else "on"


def acs(gpus: Sequence[PciGpu]) -> tuple[str, ...] | Gap:
    """The bridges above GPUs that send traffic between peers up to the root, by their PCI address."""
    bridges = dict.fromkeys(folder for gpu in gpus for folder in gpu.folder.parents if (folder / "config").exists())
    redirecting, refused = [], ""
    for bridge in list(bridges)[:BRIDGES_MAX]:
        try:
            with (bridge / "config").open("rb") as file:
                config = file.read(_CONFIG_BYTES)
        except OSError as error:
            refused = str(error)
            continue
        if len(config) <= _CONFIG_WITHOUT_RIGHTS:
            refused = "only root, with CAP_SYS_ADMIN, may read the extended configuration of PCI bridges"
        elif redirects(config):
            redirecting.append(bridge.name)
    if refused and not redirecting:
        return Gap(what="PCIe ACS", reason=GapReason.NO_PERMISSION, detail=refused)
    return tuple(redirecting)


def redirects(config: bytes) -> bool:
    """Whether a bridge's configuration space has ACS with source validation or request redirection on. Pure."""
    at, seen = _EXTENDED_AT, set[int]()
    while _EXTENDED_AT <= at <= len(config) - 8 and at not in seen:
        seen.add(at)
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _ACS:
            control = int.from_bytes(config[at + 6 : at + 8], "little")
            return bool(control & (_SOURCE_VALIDATION | _REQUEST_REDIRECT))
        at = header >> 20 & 0xFFC
    return False


def bar1_bytes(gpus: Sequence[PciGpu]) -> int | Gap:
    """The smallest window through which peers reach a GPU's memory."""
    sizes = [size for gpu in gpus if (size := _bar(gpu.folder / "resource", _BAR1[gpu.vendor]))]
    if sizes:
        return min(sizes)
    detail = "no GPU of NVIDIA or AMD is on the PCI bus" if not gpus else "their resources cannot be read"
    return Gap(what="BAR1 of the GPUs", reason=GapReason.NOT_SUPPORTED, detail=detail)


def _bar(file: Path, row: int) -> int:
    rows = sysfs.text(file).splitlines()
    try:
        begin, end = (int(word, 16) for word in rows[row].split()[:2])
    except (IndexError, ValueError):
        return 0
    return end - begin + 1 if end > begin else 0


def _hex(file: Path) -> int:
    try:
        return int(sysfs.text(file) or "0", 16)
    except ValueError:
        return 0
