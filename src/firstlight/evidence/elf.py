"""Read ELF files: sections by name, segments, the build id, the soname; nothing of the file is trusted.

Price: reads. Layout from elf(5), for 64-bit little-endian files (x86-64, aarch64). Files are read, not mapped: one
that shrinks meanwhile is an error here, where a mapping would be the end of firstlight. Every offset, count and
length that the file tells is bounded before it is used. Which GPUs a library serves is in its sections, how to unwind
its code in its segments (`unwind/`).
"""

import os
import struct
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeAlias

Read: TypeAlias = Callable[[int, int], bytes]
"""Bytes of a file by offset and length; fewer at its end."""

ROWS_MAX = 4096
ROW_BYTES_MAX = 256
NAMES_BYTES_MAX = 1 << 20
NOTES_BYTES_MAX = 1 << 16
NOTES_MAX = 16
CHUNK_BYTES = 4 << 20

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_NOTE = struct.Struct("<III")
_DYNAMIC = struct.Struct("<qQ")
_DYNAMIC_SECTION, _NOTES, _NO_BITS = 6, 7, 8
_BUILD_ID = 3
_SONAME = 14


class NotElf(ValueError):
    """The file is no 64-bit little-endian ELF file, or a damaged one."""


class Section(NamedTuple):
    """A section: its name, type, place in the file and length in bytes. One without bits in the file has length 0.

    `link` is the number of the section that it refers to, `address` 0 for one that is not loaded.
    """

    name: str
    kind: int
    offset: int
    size: int
    link: int = 0
    address: int = 0


class Segment(NamedTuple):
    """A part of the file that is mapped: `size` bytes from `offset` on lie at `address`."""

    kind: int
    offset: int
    address: int
    size: int
    executable: bool = False


class Elf:
    """An ELF file, wherever its bytes come from. `head` are the bytes of its ELF header.

    Raises:
        NotElf: at once, if it is none; later, where it is damaged.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self.head = self.bytes_at(0, _HEADER.size)
        if self.head[:6] != b"\x7fELF\x02\x01" or len(self.head) < _HEADER.size:
            raise NotElf("not a 64-bit little-endian ELF file")

    def bytes_at(self, offset: int, length: int) -> bytes:
        """Bytes of the file; fewer at its end."""
        try:
            return self._read(offset, length)
        except (OverflowError, ValueError) as error:
            raise NotElf(f"a damaged ELF file: {error}") from error

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """All sections, with their names."""
        try:
            return self._sections()
        except struct.error as error:
            raise NotElf(f"a damaged ELF file: {error}") from error

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """What of the file is mapped where, and what else its program header tells."""
        _, _, _, _, _, table, _, _, _, each, count, *_ = _HEADER.unpack(self.head)
        return tuple(
            Segment(kind, offset, address, size, executable=bool(flags & 1))
            for kind, flags, offset, address, _, size, *_ in self._rows(_SEGMENT, table, each, count)
        )

    def section(self, name: str) -> Section | None:
        """The first section of that name, None if there is none."""
        return next((one for one in self.sections if one.name == name), None)

    def read(self, section: Section, offset: int = 0, length: int = CHUNK_BYTES) -> bytes:
        """Up to `length` bytes of a section from `offset` in it; shorter at its end."""
        wanted = min(length, section.size - offset)
        return self.bytes_at(section.offset + offset, wanted) if wanted > 0 and offset >= 0 else b""

    def chunks(self, section: Section, overlap: int = 0, most: int = 1 << 62) -> Iterator[bytes]:
        """A section in pieces, each beginning with the last `overlap` bytes of the one before, up to `most`."""
        at, kept, end = 0, b"", min(section.size, most)
        while at < end:
            data = self.read(section, at, min(CHUNK_BYTES, end - at))
            if not data:
                return
            at += len(data)
            yield kept + data
            kept = data[-overlap:] if overlap else b""

    @property
    def build_id(self) -> str:
        """The id that the linker gave to this build, in hex; empty if it gave none."""
        for section in [one for one in self.sections if one.kind == _NOTES][:NOTES_MAX]:
            for name, kind, value in _notes(self.read(section, 0, NOTES_BYTES_MAX)):
                if kind == _BUILD_ID and name == b"GNU\0":
                    return value[:64].hex()
        return ""

    @property
    def soname(self) -> str:
        """The name that a library gives itself; empty if it gives none."""
        for section in self.sections:
            if section.kind == _DYNAMIC_SECTION and section.link < len(self.sections):
                entries = self.read(section, 0, NOTES_BYTES_MAX)
                whole = len(entries) // _DYNAMIC.size * _DYNAMIC.size
                for tag, value in _DYNAMIC.iter_unpack(entries[:whole]):
                    if tag == _SONAME:
                        return _text(self.read(self.sections[section.link], value, 256), 0)
        return ""

    def _sections(self) -> tuple[Section, ...]:
        _, _, _, _, _, _, table, _, _, _, _, each, count, names_at = _HEADER.unpack(self.head)
        if not table or not _SECTION.size <= each <= ROW_BYTES_MAX:
            return ()
        if count == 0 or names_at == 0xFFFF:  # more than fit: the first, empty section tells
            first = _SECTION.unpack_from(self.bytes_at(table, each))
            count, names_at = count or first[5], first[6] if names_at == 0xFFFF else names_at
        found = list(self._rows(_SECTION, table, each, count))
        names = b""
        if names_at < len(found):
            names = self.bytes_at(found[names_at][4], min(found[names_at][5], NAMES_BYTES_MAX))
        return tuple(
            Section(_text(names, name), kind, offset, 0 if kind == _NO_BITS else size, link, address)
            for name, kind, _, address, offset, size, link, *_ in found
        )

    def _rows(self, row: struct.Struct, table: int, each: int, count: int) -> Iterator[tuple[int, ...]]:
        """The rows of one of the file's two tables."""
        if row.size <= each <= ROW_BYTES_MAX:
            rows = self.bytes_at(table, each * min(count, ROWS_MAX))
            yield from (row.unpack_from(rows, at) for at in range(0, len(rows) - row.size + 1, each))


class ElfFile(Elf):
    """An ELF file on disk, opened; close it, or use it as a context manager. `size` is its length in bytes.

    Raises:
        NotElf: at once, if it is none.
        OSError: it cannot be opened or read.
    """

    def __init__(self, path: Path | str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.size = os.fstat(self._fd).st_size
            super().__init__(self._within)
            self.sections  # noqa: B018 - so that a damaged file is refused at once
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "ElfFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _within(self, offset: int, length: int) -> bytes:
        """No more than the file holds: a length that it names itself is no reason to make room for it."""
        return os.pread(self._fd, min(length, max(0, self.size - offset)), offset)


def _notes(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    at = 0
    while at + _NOTE.size <= len(data):
        name_size, value_size, kind = _NOTE.unpack_from(data, at)
        name_at = at + _NOTE.size
        value_at = name_at + (name_size + 3 & ~3)
        yield data[name_at : name_at + name_size], kind, data[value_at : value_at + value_size]
        at = value_at + (value_size + 3 & ~3)


def _text(names: bytes, at: int) -> str:
    end = names.find(b"\0", at)
    return names[at : end if end >= 0 else len(names)][:256].decode(errors="replace") if at < len(names) else ""
