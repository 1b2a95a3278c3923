"""ELF files are read section by section, and nothing in a damaged one is believed."""

import os
import random
import struct
from pathlib import Path

import pytest

from firstlight.evidence.elf import CHUNK_BYTES, ElfFile, NotElf

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
NOTES, NO_BITS = 7, 8


def elf(sections: list[tuple[str, int, bytes]], name: str = "") -> bytes:
    """A minimal file with these sections (name, type, content), and the table of their names last."""
    names, body, rows, at = b"\0", b"", [SECTION.pack(*[0] * 10)], HEADER.size
    for title, kind, content in [*sections, (".shstrtab", 3, b"")]:
        where = len(names)
        names += title.encode() + b"\0"
        data = content if title != ".shstrtab" else names
        rows.append(SECTION.pack(where, kind, 0, 0, at + len(body), len(data), 0, 0, 1, 0))
        body += data
    head = HEADER.pack(
        b"\x7fELF\x02\x01\x01".ljust(16, b"\0"),
        3,
        62,
        1,
        0,
        0,
        at + len(body),
        0,
        64,
        0,
        0,
        64,
        len(rows),
        len(rows) - 1,
    )
    return head + body + b"".join(rows)


def note(owner: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<III", len(owner), len(value), kind) + owner.ljust(-(-len(owner) // 4) * 4, b"\0") + value


@pytest.fixture
def write(tmp_path: Path):
    def into(data: bytes) -> Path:
        path = tmp_path / "library.so"
        path.write_bytes(data)
        return path

    return into


def test_sections_are_found_by_name_and_read_in_part(write) -> None:
    with ElfFile(write(elf([(".rodata", 1, b"NCCL version 2.27.5"), (".bss", NO_BITS, b"")]))) as file:
        section = file.section(".rodata")
        assert section is not None
        assert file.read(section) == b"NCCL version 2.27.5"
        assert file.read(section, 13, 4) == b"2.27"
        assert file.read(section, 1000) == b""
        assert file.read(section, -1) == b""
        assert file.section(".nothing") is None


def test_the_build_id_is_the_note_of_that_kind(write) -> None:
    notes = note(b"Go\0\0", 3, b"\xff" * 4) + note(b"GNU\0", 1, b"\0" * 16) + note(b"GNU\0", 3, bytes(range(20)))
    with ElfFile(write(elf([(".note", NOTES, notes)]))) as file:
        assert file.build_id == bytes(range(20)).hex()


def test_chunks_overlap_so_that_nothing_is_missed_between_them(write) -> None:
    content = b"a" * (CHUNK_BYTES - 3) + b"needle" + b"b" * 10
    with ElfFile(write(elf([(".rodata", 1, content)]))) as file:
        section = file.section(".rodata")
        assert section is not None
        assert sum(b"needle" in chunk for chunk in file.chunks(section, overlap=8)) == 1
        assert sum(b"needle" in chunk for chunk in file.chunks(section)) == 0
        assert sum(len(chunk) for chunk in file.chunks(section, most=100)) == 100


def test_a_real_library_tells_its_soname_and_build() -> None:
    maps = Path("/proc/self/maps").read_text().split()
    libc = next(path for path in maps if "/libc.so" in path or "/libc-" in path)
    with ElfFile(libc) as file:
        assert file.soname.startswith("libc.")
        assert len(file.build_id) >= 16
        text = file.section(".text")
        assert text is not None
        assert text.size > 1000


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"MZ" * 100, b"\x7fELF\x01\x01" + b"\0" * 60, b"\x7fELF\x02\x02" + b"\0" * 60]
)
def test_what_is_no_such_file_is_refused(write, data: bytes) -> None:
    with pytest.raises(NotElf):
        ElfFile(write(data))


def test_a_fifo_and_a_folder_do_not_hold_us_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises((NotElf, OSError)):
        ElfFile(tmp_path / "fifo")
    with pytest.raises((NotElf, OSError)):
        ElfFile(tmp_path)


def test_a_damaged_file_never_breaks_more_than_itself(write) -> None:
    """Bytes of the header, the tables and the content changed at random: an error of ours or an answer."""
    whole, dice = elf([(".note", NOTES, note(b"GNU\0", 3, b"1234")), (".dynamic", 6, b"\x0e" * 64)]), random.Random(7)
    for _ in range(500):
        data = bytearray(whole[: dice.randrange(1, len(whole) + 1)] if dice.random() < 0.3 else whole)
        for _ in range(dice.randrange(1, 12)):
            data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0xFF, dice.randrange(256)))
        try:
            with ElfFile(write(bytes(data))) as file:
                assert len(file.build_id) <= 128
                assert len(file.soname) <= 256
                for section in file.sections:
                    assert len(file.read(section)) <= len(data)
        except (NotElf, OSError):
            continue


def test_a_count_of_sections_that_does_not_fit_stands_in_the_first_one(write) -> None:
    """More than 65,279 sections: the header says 0 (elf(5), e_shnum)."""
    data = bytearray(elf([(".rodata", 1, b"text")]))
    table = HEADER.unpack_from(data)[6]
    struct.pack_into("<Q", data, table + 32, 3)
    struct.pack_into("<I", data, table + 40, 2)
    struct.pack_into("<HH", data, HEADER.size - 4, 0, 0xFFFF)
    with ElfFile(write(bytes(data))) as file:
        assert file.section(".rodata") is not None
