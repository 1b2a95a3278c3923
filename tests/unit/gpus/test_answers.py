"""What the lines of a helper and of the kernel log mean."""

import os
import subprocess
import sys

import pytest

from firstlight.core.gpu import Gpu
from firstlight.gpus import with_xids, xids
from firstlight.gpus.answers import here, pci_address


@pytest.mark.parametrize(
    ("told", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00", "0000:3b:00.0"),
        ("00010000:C1:1f.7", "10000:c1:1f.7"),
        ("0000:3b", ""),
        ("", ""),
        ("../../etc", ""),
    ],
)
def test_a_pci_address_is_written_as_sys_has_it(told: str, address: str) -> None:
    assert pci_address(told) == address


def test_xids_of_each_gpu_in_the_order_they_came() -> None:
    lines = (
        "[  812.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000008",
        "[  812.2] NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000009",
        "[  813.0] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "6,1,2,-;NVRM: Xid (0000:86:00): 13, Graphics Exception: ESR 0x404490=0x80000001",
        "nvidia-nvswitch0: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "NVRM: Xid (PCI:nonsense): 79",
        "NVRM: GPU at PCI:0000:3b:00: GPU-6fbf8f4f",
    )
    assert xids(lines) == {"0000:3b:00.0": (31, 79), "0000:86:00.0": (13,)}


def test_xids_find_their_gpu() -> None:
    first, second = Gpu(index=0, name="a", pci="0000:3b:00.0"), Gpu(index=1, name="b", pci="")
    found = with_xids((first, second), ["NVRM: Xid (PCI:0000:3b:00): 48, pid=1"])
    assert [gpu.xid for gpu in found] == [(48,), ()]


def test_a_pid_is_ours_only_if_its_process_has_the_device_open() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert here(child.pid) is False
        assert here(os.getpid(), ("/dev/null", "pipe:", "/")) is True
        child.kill()
    assert here(child.pid) is False
