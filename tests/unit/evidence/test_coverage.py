"""What libraries say they can run on: fabricated and damaged ELF files, and CUDA's own tools where there are any."""

import itertools
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from firstlight.clock import Clock, Deadline, HandClock, SystemClock
from firstlight.core.host import Coverage
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.coverage import coverage, runs_on

PTX, ELF, LTO = 1, 2, 8
ALONE, FAMILY = 1 << 20, 1 << 21
SECTION = struct.Struct("<IIQQQQIIQQ")
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")


def entry(kind: int, architecture: int, flags: int = 0, header: int = 64, payload: bytes = b"code" * 16) -> bytes:
    head = struct.pack(
        "<HHIQIIHHIIIQ", kind, 0x101, header, len(payload), 0, 0, 8, 1, architecture, 0, 0, flags | 0x11
    )
    return head.ljust(header, b"\0") + payload


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def bundle(*targets: str) -> bytes:
    names = [b"host-x86_64-unknown-linux--", *(b"hipv4-amdgcn-amd-amdhsa--" + one.encode() for one in targets)]
    code = b"\x7fELF of AMD".ljust(64, b"\0")
    rows_length = sum(24 + len(name) for name in names)
    places = itertools.count(32 + rows_length, len(code))
    rows = b""
    for index, name in enumerate(names):
        rows += struct.pack("<QQQ", next(places) if index else 0, len(code) if index else 0, len(name)) + name
    whole = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(names)) + rows + code * len(targets)
    return whole.ljust(-(-len(whole) // 4096) * 4096, b"\0")


def elf(sections: Mapping[str, bytes]) -> bytes:
    """A shared object with these sections, behind the table of them, so that a file cut short still has that."""
    named = {".shstrtab": b"\0" + b"".join(name.encode() + b"\0" for name in (".shstrtab", *sections)), **sections}
    names = named[".shstrtab"]
    rows, body, at = [bytes(SECTION.size)], b"", HEADER.size + SECTION.size * (1 + len(named))
    for name, data in named.items():
        rows.append(SECTION.pack(names.index(name.encode() + b"\0"), 1, 0, 0, at + len(body), len(data), 0, 0, 8, 0))
        body += data.ljust(-(-len(data) // 8) * 8, b"\0")
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head = HEADER.pack(identity, 3, 62, 1, 0, 0, HEADER.size, 0, 64, 0, 0, SECTION.size, len(rows), 1)
    return head + b"".join(rows) + body


def with_section(section: str, data: bytes) -> bytes:
    return elf({section: data})


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return tmp_path / "libkernels.so"


@pytest.fixture
def clock() -> Clock:
    return HandClock()


def covered(path: Path, clock: Clock, architectures: Sequence[str] = (), seconds: float = 5.0) -> Coverage:
    (found,) = coverage([str(path)], architectures, Deadline(clock, seconds, "the kernels"))
    assert found.library == str(path)
    return found


def test_machine_code_and_ptx_of_every_container(library: Path, clock: Clock) -> None:
    first = container(entry(ELF, 80), entry(ELF, 90, ALONE), entry(ELF, 100, FAMILY, header=112))
    second = container(entry(ELF, 80), entry(PTX, 120, header=80), entry(LTO, 75))
    library.write_bytes(elf({".text": b"host", ".nv_fatbin": first + b"\0" * 24 + second}))
    found = covered(library, clock)
    assert (found.machine_code, found.ptx, found.unread) == (("80", "90a", "100f"), ("120",), ())


def test_ptx_that_is_linked_at_run_time_counts(library: Path, clock: Clock) -> None:
    relocatable = container(entry(ELF, 80), entry(PTX, 90))
    library.write_bytes(elf({"__nv_relfatbin": relocatable, ".nv_fatbin": container(entry(ELF, 80))}))
    found = covered(library, clock)
    assert (found.machine_code, found.ptx) == (("80",), ("90",))


def test_containers_far_apart_are_found(library: Path, clock: Clock) -> None:
    apart = b"\0" * ((1 << 16) - 8)
    library.write_bytes(
        with_section(".nv_fatbin", apart + container(entry(ELF, 75)) + apart + container(entry(ELF, 89)))
    )
    assert covered(library, clock).machine_code == ("75", "89")


@pytest.mark.parametrize(
    ("machine_code", "ptx", "gpu", "way"),
    [
        (["80"], [], "80", "machine code"),
        (["80"], [], "86", "machine code"),
        (["86"], [], "80", "no"),
        (["80", "90"], [], "100", "no"),
        (["90a"], [], "90", "machine code"),
        (["100a"], [], "103", "no"),
        (["100f"], [], "103", "machine code"),
        (["103f"], [], "100", "no"),
        (["100f"], [], "120", "no"),
        (["120"], [], "121", "machine code"),
        (["80"], ["90"], "120", "ptx"),
        (["80"], ["120"], "90", "no"),
        ([], ["90a"], "100", "no"),
        ([], ["90a"], "90", "ptx"),
        ([], ["100f"], "103", "ptx"),
        ([], ["100f"], "120", "no"),
        ([], [], "90", "no"),
        (["90"], ["90"], "", "no"),
        (["gfx942"], [], "gfx942", "machine code"),
        (["gfx90a"], [], "gfx942", "no"),
        (["gfx9-4-generic"], [], "gfx950", "machine code"),
        (["gfx11-generic"], [], "gfx1201", "no"),
        (["nonsense", "90 "], ["?"], "90", "no"),
    ],
)
def test_how_code_runs_on_a_gpu(machine_code: list[str], ptx: list[str], gpu: str, way: str) -> None:
    assert runs_on(machine_code, ptx, gpu) == way


def test_what_is_missing_for_the_gpus_of_this_machine(library: Path, clock: Clock) -> None:
    library.write_bytes(with_section(".nv_fatbin", container(entry(ELF, 80), entry(PTX, 90))))
    newer = covered(library, clock, ["80", "120"])
    assert (newer.missing, newer.runs_from_ptx) == (("120",), True)
    older = covered(library, clock, ["75", "120"])
    assert (older.missing, older.runs_from_ptx) == (("75", "120"), False)
    assert covered(library, clock, ["86"]).missing == ()
    assert covered(library, clock, ["gfx942"]).missing == (), "another maker's GPU is not its business"


def test_a_library_for_amd(library: Path, clock: Clock) -> None:
    library.write_bytes(
        with_section(".hip_fatbin", bundle("gfx90a:xnack-", "gfx942:sramecc+:xnack-") + bundle("gfx1100"))
    )
    found = covered(library, clock, ["gfx942", "gfx950"])
    assert set(found.machine_code) == {"gfx90a", "gfx942", "gfx1100"}
    assert (found.missing, found.runs_from_ptx, found.unread) == (("gfx950",), False, ())


def test_compressed_bundles_keep_their_targets_to_themselves(library: Path, clock: Clock) -> None:
    library.write_bytes(with_section(".hip_fatbin", b"CCOB" + b"\x02\0\x01\0" + b"\0" * 60))
    found = covered(library, clock, ["gfx942"])
    assert "compressed" in found.unread[0].detail
    assert found.missing == ()


def test_a_bare_file_of_machine_code(library: Path, clock: Clock) -> None:
    def cubin(abi: int, flags: int) -> bytes:
        head = bytearray(elf({".text": b"code"}))
        head[8] = abi
        struct.pack_into("<H", head, 18, 190)
        struct.pack_into("<I", head, 48, flags)
        return bytes(head)

    for abi, flags, architecture in (
        (7, 0x5A0D5A, "90a"),
        (7, 0x560556, "86"),
        (8, 0x600640A, "100a"),
        (8, 0x6007802, "120"),
    ):
        library.write_bytes(cubin(abi, flags))
        assert covered(library, clock).machine_code == (architecture,)


def test_files_without_device_code_are_left_out(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "plain.so").write_bytes(elf({".text": b"host"}))
    (tmp_path / "text.so").write_bytes(b"no ELF file")
    (tmp_path / "empty.so").touch()
    paths = [str(path) for path in tmp_path.iterdir()]
    assert coverage(paths, ["90"], Deadline(clock, 5.0, "the kernels")) == ()


def test_a_file_that_is_gone_is_a_gap(library: Path, clock: Clock) -> None:
    (gap,) = covered(library, clock).unread
    assert gap.reason == GapReason.VANISHED


@pytest.mark.parametrize(
    "section",
    [
        struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 63),
        container(entry(ELF, 80)) + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 20) + entry(ELF, 90),
        container(entry(ELF, 80), entry(ELF, 90, header=4)),
        container(entry(ELF, 80), entry(ELF, 90)[:40] + b"\xff" * 40),
        container(struct.pack("<HHIQIIHHIIIQ", ELF, 0, 64, 1 << 62, 0, 0, 0, 0, 90, 0, 0, 0)),
        container(entry(ELF, 4_000_000)),
        container(entry(ELF, 80))[:-70],
        b"an unknown kind of container" * 100,
    ],
)
def test_a_damaged_section_is_a_gap_and_nothing_is_missing(library: Path, clock: Clock, section: bytes) -> None:
    library.write_bytes(with_section(".nv_fatbin", section))
    found = covered(library, clock, ["120"])
    assert found.unread[0].reason == GapReason.NOT_SUPPORTED
    assert found.missing == ()


def test_a_file_cut_short_never_says_that_something_is_missing(library: Path, clock: Clock) -> None:
    whole = elf({".nv_fatbin": container(entry(ELF, 80), entry(ELF, 90))})
    library.write_bytes(whole)
    assert covered(library, clock, ["120"]).missing == ("120",)
    for length in range(len(whole)):
        library.write_bytes(whole[:length])
        found = coverage([str(library)], ["120"], Deadline(clock, 5.0, "the kernels"))
        assert all(one.missing == () and one.unread for one in found), length


class Hurried(HandClock):
    """A second passes with every look at it."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


def test_what_could_not_be_read_in_time_is_a_gap(library: Path, tmp_path: Path) -> None:
    library.write_bytes(with_section(".nv_fatbin", b"".join(container(entry(ELF, 80)) for _ in range(100))))
    other = tmp_path / "other.so"
    other.write_bytes(library.read_bytes())
    partial, unseen = coverage([str(library), str(other)], ["120"], Deadline(Hurried(), 20.0, "the kernels"))
    assert partial.machine_code == ("80",)
    assert unseen.machine_code == ()
    for one in (partial, unseen):
        assert one.unread[0].reason == GapReason.TIMED_OUT
        assert one.missing == ()


def test_a_section_of_gigabytes_without_containers_costs_no_more_than_its_deadline(library: Path) -> None:
    whole = bytearray(elf({".nv_fatbin": b""}))
    struct.pack_into("<Q", whole, HEADER.size + 2 * SECTION.size + 32, 64 << 30)
    library.write_bytes(whole)
    os.truncate(library, 65 << 30)  # a hole: no disk is used
    found = covered(library, SystemClock(), seconds=0.3)
    assert found.unread[0].reason == GapReason.TIMED_OUT


TOOLS = ("ptxas", "fatbinary", "cuobjdump")


@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason="needs CUDA's own ptxas, fatbinary and cuobjdump")
def test_the_same_is_found_as_by_cudas_own_tools(library: Path, tmp_path: Path, clock: Clock) -> None:
    images = []
    for name in ("80", "90", "90a", "100f", "120a"):
        source = tmp_path / f"{name}.ptx"
        source.write_text(f".version 9.0\n.target sm_{name}\n.address_size 64\n.visible .entry k(){{ ret; }}\n")
        subprocess.run(
            ["ptxas", f"-arch=sm_{name}", source, "-o", tmp_path / f"{name}.cubin"], check=True, timeout=60
        )
        images += [f"--image3=kind=elf,sm={name},file={tmp_path / name}.cubin"]
        images += [f"--image3=kind=ptx,sm={name},file={source}"]
    fatbin = tmp_path / "all.fatbin"
    subprocess.run(["fatbinary", "-64", f"--create={fatbin}", *images], check=True, timeout=60)
    library.write_bytes(with_section(".nv_fatbin", fatbin.read_bytes()))
    found = covered(library, clock)
    assert set(found.ptx) == listed(fatbin, "--list-ptx")
    assert {name.rstrip("f") for name in found.machine_code} == listed(fatbin, "--list-elf"), "a family's is as plain"


def listed(fatbin: Path, what: str) -> set[str]:
    output = subprocess.run(
        ["cuobjdump", what, fatbin], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    return set(re.findall(r"\.sm_(\w+)\.", output))
