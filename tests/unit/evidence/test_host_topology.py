"""Ways between GPUs, from trees like /sys of machines that have some; no test machine has."""

from pathlib import Path

import pytest

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.host.topology import redirects, topology

MIB = 1 << 20
SOURCE_VALIDATION, REQUEST_REDIRECT, UPSTREAM = 0x1, 0x4, 0x10


def config(control: int | None, size: int = 4096) -> bytes:
    """A bridge's configuration space: AER first, then ACS with this control word (none if it has no ACS)."""
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | 1 << 16 | (0x148 << 20 if control is not None else 0)).to_bytes(4, "little")
    if control is not None:
        space[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
        space[0x14E:0x150] = control.to_bytes(2, "little")
    return bytes(space[:size])


class Tree:
    """A /sys with PCI devices."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bus/pci/devices").mkdir(parents=True)

    def bridge(self, path: str, space: bytes) -> None:
        folder = self.root / "devices" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config").write_bytes(space)

    def device(
        self, path: str, vendor: str = "0x10de", class_: str = "0x030200", bars: str = "", group: str = ""
    ) -> None:
        folder = self.root / "devices" / path
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{class_}\n")
        (folder / "resource").write_text(bars)
        if group:
            (folder / "iommu_group").mkdir()
            (folder / "iommu_group" / "type").write_text(f"{group}\n")
        (self.root / "bus/pci/devices" / folder.name).symlink_to(folder)

    def iommu(self) -> None:
        (self.root / "class/iommu/dmar0").mkdir(parents=True)


def bars(*sizes: int) -> str:
    rows = [
        f"0x{at << 40:016x} 0x{(at << 40) + size - 1:016x} 0x000000000014220c" for at, size in enumerate(sizes, 1)
    ]
    return "".join(f"{row}\n" for row in [*rows, "0x0000000000000000 0x0000000000000000 0x0000000000000000"])


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_bridges_that_redirect_peer_traffic_are_named(tree: Tree) -> None:
    tree.bridge("pci0000:00/0000:00:01.0", config(SOURCE_VALIDATION | REQUEST_REDIRECT | UPSTREAM))
    tree.device("pci0000:00/0000:00:01.0/0000:01:00.0", bars=bars(16 * MIB, 256 * MIB))
    tree.bridge("pci0000:80/0000:80:01.0", config(UPSTREAM))
    tree.device("pci0000:80/0000:80:01.0/0000:81:00.0", class_="0x030000", bars=bars(16 * MIB, 32768 * MIB))
    found = topology(tree.root)
    assert found.acs == ("0000:00:01.0",)
    assert found.bar1_bytes == 256 * MIB
    assert found.iommu == "off"


def test_bridges_above_other_devices_do_not_matter(tree: Tree) -> None:
    tree.bridge("pci0000:00/0000:00:02.0", config(SOURCE_VALIDATION))
    tree.device("pci0000:00/0000:00:02.0/0000:02:00.0", vendor="0x15b3", class_="0x020000")
    tree.device("pci0000:00/0000:00:03.0", vendor="0x1a03", class_="0x030000")
    found = topology(tree.root)
    assert found.acs == ()
    assert isinstance(found.bar1_bytes, Gap)


def test_amd_has_its_window_in_the_first_row(tree: Tree) -> None:
    tree.device("pci0000:00/0000:01:00.0", vendor="0x1002", class_="0x120000", bars=bars(65536 * MIB, 2 * MIB))
    assert topology(tree.root).bar1_bytes == 65536 * MIB


@pytest.mark.parametrize(
    ("groups", "expected"),
    [(["identity", "identity"], "passthrough"), (["DMA-FQ", "identity"], "on"), (["DMA"], "on")],
)
def test_the_iommu_by_what_it_does_to_the_gpus(tree: Tree, groups: list[str], expected: str) -> None:
    tree.iommu()
    for number, group in enumerate(groups):
        tree.device(f"pci0000:00/0000:0{number}:00.0", group=group)
    assert topology(tree.root, ("iommu=pt",)).iommu == expected


@pytest.mark.parametrize(("words", "expected"), [(("iommu=pt",), "passthrough"), (("quiet",), "on"), ((), "on")])
def test_without_groups_the_kernels_command_line_tells(tree: Tree, words: tuple[str, ...], expected: str) -> None:
    tree.iommu()
    assert topology(tree.root, words).iommu == expected


def test_what_only_root_may_read_is_a_gap(tree: Tree) -> None:
    tree.bridge("pci0000:00/0000:00:01.0", config(SOURCE_VALIDATION, size=64))
    tree.device("pci0000:00/0000:00:01.0/0000:01:00.0")
    refused = topology(tree.root).acs
    assert isinstance(refused, Gap)
    assert refused.reason is GapReason.NO_PERMISSION


def test_a_machine_without_pci_is_a_gap(tmp_path: Path) -> None:
    found = topology(tmp_path)
    assert isinstance(found.iommu, Gap)
    assert isinstance(found.acs, Gap)


def test_nonsense_in_the_tree_is_no_gpu_and_no_window(tree: Tree) -> None:
    tree.device("pci0000:00/0000:01:00.0", vendor="garbage")
    tree.device("pci0000:00/0000:02:00.0", bars="0x1\nxyz 0x3\n")
    assert isinstance(topology(tree.root).bar1_bytes, Gap)


def test_a_list_of_capabilities_that_goes_round_ends() -> None:
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | 0x100 << 20).to_bytes(4, "little")
    assert not redirects(bytes(space))
    assert not redirects(b"")
    assert not redirects(config(None))
    assert not redirects(config(SOURCE_VALIDATION, size=0x14A))
