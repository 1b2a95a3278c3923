"""NVIDIA's error events, Xid, out of the kernel log.

NVML has no call for those of the past: it hands them to whoever registered before they came, and has none that gives
the last one. The driver writes each into the kernel log: "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU
has fallen off the bus." NVSwitch's own events (SXid) name a switch and no GPU, and are left out.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from firstlight.core.gpu import Gpu
from firstlight.gpus.answers import pci_address

_XID = re.compile(r"\bNVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{7,20})\): (\d{1,4})\b")


def xids(lines: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The numbers of the events of each GPU by its PCI address as /sys has it, each once, in the order they came."""
    found: dict[str, dict[int, None]] = {}
    for line in lines:
        match = _XID.search(line[:2000])
        address = pci_address(match[1]) if match else ""
        if match and address:
            found.setdefault(address, {})[int(match[2])] = None
    return {address: tuple(numbers) for address, numbers in found.items()}


def with_xids(gpus: Sequence[Gpu], kernel_log: Iterable[str]) -> tuple[Gpu, ...]:
    """The GPUs with the events that the kernel log has of them."""
    found = xids(kernel_log)
    return tuple(msgspec.structs.replace(gpu, xid=found[gpu.pci]) if gpu.pci in found else gpu for gpu in gpus)
