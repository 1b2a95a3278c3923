"""What unwinding needs of an ELF file (elf(5), 64 bit, little endian): where things lie, and the names of functions.

Everything is read piece by piece, with bounds: the file is whatever the target has mapped, so it is not to be
trusted. Any nonsense raises `ValueError` or `struct.error`.
"""

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

Read: TypeAlias = Callable[[int, int], bytes]
"""Bytes of the file by offset and length; fewer at its end."""

HEADER_BYTES = 64
SYMBOLS_BYTES_MAX = 192 * 1024 * 1024
NAME_BYTES_MAX = 1024
_TABLES_MAX = 4096
_NOTES_BYTES_MAX = 4096
_PAGE = 4096
_PACKED_BYTES_MAX = 16 * 1024 * 1024
_UNPACKED_BYTES_MAX = 128 * 1024 * 1024

_LOAD, _NOTE, _EH_FRAME = 1, 4, 0x6474E550
_PROGRAM_BITS = 1  # SHT_PROGBITS
_SYMBOL_TABLES = frozenset({2, 11})  # SHT_SYMTAB, SHT_DYNSYM
_FUNCTIONS = frozenset({2, 10})  # STT_FUNC, STT_GNU_IFUNC
_SYMBOL = struct.Struct("<IBBHQQ")
_CHUNK = 65536 * _SYMBOL.size


class Segment(NamedTuple):
    """A part of the file that is mapped: `size` bytes from `offset` on lie at `address`."""

    kind: int
    offset: int
    address: int
    size: int
    executable: bool = False


class Elf:
    """An ELF file. Addresses are the file's own, before the loader moves it.

    Raises:
        ValueError: it is none, or not of this kind.
    """

    def __init__(self, read: Read) -> None:
        self.read = read
        header = read(0, HEADER_BYTES)
        if header[:6] != b"\x7fELF\x02\x01" or len(header) < HEADER_BYTES:
            raise ValueError("no 64 bit little endian ELF file")
        segments_at, self._sections_at = struct.unpack_from("<QQ", header, 32)
        each, count, self._section_bytes, self._sections = struct.unpack_from("<HHHH", header, 54)
        self.segments = [self._segment(segments_at + each * n) for n in range(min(count, _TABLES_MAX))]

    def _segment(self, at: int) -> Segment:
        kind, flags, offset, address, _, size = struct.unpack("<IIQQQQ", self.read(at, 40))
        return Segment(kind, offset, address, size, executable=bool(flags & 1))

    def address_of_code(self, offset: int) -> int:
        """Where the byte at `offset` of the file is mapped to be executed.

        Raises:
            ValueError: it is not.
        """
        for one in self.segments:
            if one.kind == _LOAD and one.executable and one.offset & -_PAGE <= offset < one.offset + one.size:
                return offset - one.offset + one.address
        raise ValueError(f"offset {offset:#x} is not mapped to be executed")

    def at(self, address: int, length: int) -> bytes:
        """Bytes of the file by the address that they are mapped at.

        Raises:
            ValueError: none are.
        """
        for one in self.segments:
            if one.kind == _LOAD and one.address <= address < one.address + one.size:
                return self.read(address - one.address + one.offset, min(length, one.address + one.size - address))
        raise ValueError(f"address {address:#x} is not in the file")

    @property
    def eh_frame_header(self) -> int:
        """The address of the table of call frame information.

        Raises:
            ValueError: the file has none.
        """
        for one in self.segments:
            if one.kind == _EH_FRAME:
                return one.address
        raise ValueError("no table of call frame information")

    @property
    def build_id(self) -> str:
        """The number that ties a file to its debug file (ld(1), --build-id), in hex; empty if it has none."""
        for one in self.segments:
            notes = self.read(one.offset, min(one.size, _NOTES_BYTES_MAX)) if one.kind == _NOTE else b""
            if found := re.search(rb"\x04\0\0\0(.)\0\0\0\x03\0\0\0GNU\0", notes, re.DOTALL):
                return notes[found.end() : found.end() + found[1][0]].hex()
        return ""

    def names(self, addresses: Iterable[int]) -> dict[int, str]:
        """The function that each address lies in; those that lie in none that has a name are missing."""
        wanted = sorted(set(addresses))
        best: dict[int, tuple[int, int, int, str]] = {}
        for symbols, strings in self._symbol_tables():
            for address, begins, at in self._holding(symbols, wanted):
                name = self.read(strings.offset + at, NAME_BYTES_MAX).partition(b"\0")[0].decode(errors="replace")
                one = (-begins, len(name) - len(name.lstrip("_")), len(name), name)
                if name and (address not in best or one < best[address]):
                    best[address] = one  # the nearest beginning, and the public name before its aliases
        return {address: one[-1] for address, one in best.items()}

    def packed_names(self, addresses: Iterable[int]) -> dict[int, str]:
        """The same from the local names that some distributions pack into .gnu_debugdata ("MiniDebugInfo")."""
        for section, _ in self._section_rows():
            if section.kind == _PROGRAM_BITS and section.size <= _PACKED_BYTES_MAX and not section.address:
                packed = self.read(section.offset, section.size)
                if packed.startswith(b"\xfd7zXZ\0"):
                    return _in_memory(_unpacked(packed)).names(addresses)
        return {}

    def _symbol_tables(self) -> Iterator[tuple[Segment, Segment]]:
        sections = self._section_rows()
        for section, link in sections:
            if section.kind in _SYMBOL_TABLES and link < len(sections):
                yield section, sections[link][0]

    def _section_rows(self) -> list[tuple[Segment, int]]:
        return [self._section(n) for n in range(min(self._sections, _TABLES_MAX))]

    def _section(self, number: int) -> tuple[Segment, int]:
        row = self.read(self._sections_at + self._section_bytes * number, 64)
        _, kind, _, address, offset, size, link = struct.unpack_from("<IIQQQQI", row)
        return Segment(kind, offset, address, size), link

    def _holding(self, table: Segment, addresses: list[int]) -> Iterator[tuple[int, int, int]]:
        """Every address with the beginning of a symbol that holds it and the place of its name."""
        if not addresses:
            return
        lowest, highest = addresses[0], addresses[-1]
        for begin in range(0, min(table.size, SYMBOLS_BYTES_MAX), _CHUNK):
            data = self.read(table.offset + begin, min(_CHUNK, table.size - begin))
            for name, info, _, _, value, size in _SYMBOL.iter_unpack(data[: len(data) // 24 * 24]):
                if value <= highest and value + size > lowest and info & 15 in _FUNCTIONS:
                    for address in addresses:
                        if value <= address < value + size:
                            yield address, value, name


def _in_memory(data: bytes) -> Elf:
    return Elf(lambda offset, length: data[offset : offset + length])


def _unpacked(packed: bytes) -> bytes:
    """Raises ValueError: this is not xz, needs too much memory, or this Python was built without lzma."""
    try:
        import lzma
    except ImportError as error:
        raise ValueError(str(error)) from error
    try:
        return lzma.LZMADecompressor(memlimit=_UNPACKED_BYTES_MAX).decompress(packed, _UNPACKED_BYTES_MAX)
    except (EOFError, lzma.LZMAError) as error:
        raise ValueError(str(error)) from error


def readable(name: str, _known: Mapping[str, str] = {"St": "std"}) -> str:
    """The qualified name in a mangled C++ symbol, without arguments (Itanium C++ ABI, 5.1); others unchanged."""
    if not name.startswith("_Z"):
        return name
    at, parts = 2, list[str]()
    while at < len(name) and name[at] in "NKVrRO":
        at += 1
    while at < len(name):
        if name[at : at + 2] in _known:
            parts.append(_known[name[at : at + 2]])
            at += 2
        elif name[at].isdigit():
            digits = name[at : at + 4][: _digits(name, at)]
            at += len(digits)
            parts.append(name[at : at + int(digits)])
            at += int(digits)
        elif parts and name[at : at + 2] in {"C1", "C2", "D0", "D1", "D2"}:
            parts.append(("~" if name[at] == "D" else "") + parts[-1])
            break
        else:
            break
    return "::".join(parts) or name


def _digits(name: str, at: int) -> int:
    count = 0
    while count < 4 and name[at + count : at + count + 1].isdigit():
        count += 1
    return count
