"""Read ELF files: sections by name, the build id, the soname; nothing is trusted, nothing is read twice.

Price: reads. Layout from elf(5), for 64-bit little-endian files (x86-64, aarch64). Files are read, not mapped: one
that shrinks meanwhile is an error here, where a mapping would be the end of firstlight. Every offset, count and
length of the file is bounded before it is used.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

SECTIONS_MAX = 4096
SECTION_BYTES_MAX = 256
NAMES_BYTES_MAX = 1 << 20
NOTES_BYTES_MAX = 1 << 16
NOTES_MAX = 16
CHUNK_BYTES = 4 << 20

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTE = struct.Struct("<III")
_DYNAMIC = struct.Struct("<qQ")
_DYNAMIC_SECTION, _NOTES, _NO_BITS = 6, 7, 8
_BUILD_ID = 3
_SONAME = 14


class NotElf(ValueError):
    """The file is no 64-bit little-endian ELF file, or a damaged one."""


class Section(NamedTuple):
    """A section: its name, type, place in the file and length in bytes. One without bits in the file has length 0."""

    name: str
    kind: int
    offset: int
    size: int
    link: int = 0


class Elf:
    """An open ELF file; close it, or use it as a context manager. `head` are the bytes of its ELF header.

    Raises:
        NotElf: at once, if it is none.
        OSError: it cannot be opened or read.
    """

    def __init__(self, path: Path | str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.size = os.fstat(self._fd).st_size
            self.head = self._at(0, _HEADER.size)
            self.sections = self._sections()
        except struct.error as error:
            self.close()
            raise NotElf(f"a damaged ELF file: {error}") from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Elf":
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

    def section(self, name: str) -> Section | None:
        """The first section of that name, None if there is none."""
        return next((one for one in self.sections if one.name == name), None)

    def read(self, section: Section, offset: int = 0, length: int = CHUNK_BYTES) -> bytes:
        """Up to `length` bytes of a section from `offset` in it; shorter at its end."""
        wanted = min(length, section.size - offset)
        return self._at(section.offset + offset, wanted) if wanted > 0 and offset >= 0 else b""

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

    def _at(self, offset: int, length: int) -> bytes:
        try:
            return os.pread(self._fd, min(length, max(0, self.size - offset)), offset)
        except (OverflowError, ValueError) as error:
            raise NotElf(f"a damaged ELF file: {error}") from error

    def _sections(self) -> tuple[Section, ...]:
        if self.head[:6] != b"\x7fELF\x02\x01":
            raise NotElf("not a 64-bit little-endian ELF file")
        _, _, _, _, _, _, table, _, _, _, _, each, count, names_at = _HEADER.unpack(self.head)
        if not table or not _SECTION.size <= each <= SECTION_BYTES_MAX:
            return ()
        if count == 0 or names_at == 0xFFFF:  # more than fit: the first, empty section tells
            first = _SECTION.unpack_from(self._at(table, each))
            count, names_at = count or first[5], first[6] if names_at == 0xFFFF else names_at
        rows = self._at(table, each * min(count, SECTIONS_MAX))
        found = [_SECTION.unpack_from(rows, at) for at in range(0, len(rows) - _SECTION.size + 1, each)]
        names = (
            self._at(found[names_at][4], min(found[names_at][5], NAMES_BYTES_MAX)) if names_at < len(found) else b""
        )
        return tuple(
            Section(_text(names, name), kind, offset, 0 if kind == _NO_BITS else size, link)
            for name, kind, _, _, offset, size, link, *_ in found
        )


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
