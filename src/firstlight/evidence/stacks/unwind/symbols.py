"""Names of functions by address, from the symbol tables of an ELF file (elf(5)), and made readable.

Any nonsense in the file raises `ValueError` or `struct.error`.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping

from firstlight.evidence.elf import Elf, Section

SYMBOLS_BYTES_MAX = 192 * 1024 * 1024
NAME_BYTES_MAX = 1024
_PACKED_BYTES_MAX = 16 * 1024 * 1024
_UNPACKED_BYTES_MAX = 128 * 1024 * 1024

_PROGRAM_BITS = 1  # SHT_PROGBITS
_SYMBOL_TABLES = frozenset({2, 11})  # SHT_SYMTAB, SHT_DYNSYM
_FUNCTIONS = frozenset({2, 10})  # STT_FUNC, STT_GNU_IFUNC
_SYMBOL = struct.Struct("<IBBHQQ")
_CHUNK = 65536 * _SYMBOL.size


def names(elf: Elf, addresses: Iterable[int]) -> dict[int, str]:
    """The function that each address lies in; those that lie in none that has a name are missing."""
    wanted = sorted(set(addresses))
    best: dict[int, tuple[int, int, int, str]] = {}
    for symbols, strings in _symbol_tables(elf):
        for address, begins, at in _holding(elf, symbols, wanted):
            told = elf.bytes_at(strings.offset + at, NAME_BYTES_MAX).partition(b"\0")[0].decode(errors="replace")
            one = (-begins, len(told) - len(told.lstrip("_")), len(told), told)
            if told and (address not in best or one < best[address]):
                best[address] = one  # the nearest beginning, and the public name before its aliases
    return {address: one[-1] for address, one in best.items()}


def packed_names(elf: Elf, addresses: Iterable[int]) -> dict[int, str]:
    """The same from the local names that some distributions pack into .gnu_debugdata ("MiniDebugInfo")."""
    for section in elf.sections:
        if section.kind == _PROGRAM_BITS and section.size <= _PACKED_BYTES_MAX and not section.address:
            packed = elf.read(section, length=section.size)
            if packed.startswith(b"\xfd7zXZ\0"):
                return names(_in_memory(_unpacked(packed)), addresses)
    return {}


def _symbol_tables(elf: Elf) -> Iterator[tuple[Section, Section]]:
    for section in elf.sections:
        if section.kind in _SYMBOL_TABLES and section.link < len(elf.sections):
            yield section, elf.sections[section.link]


def _holding(elf: Elf, table: Section, addresses: list[int]) -> Iterator[tuple[int, int, int]]:
    """Every address with the beginning of a symbol that holds it and the place of its name."""
    if not addresses:
        return
    lowest, highest = addresses[0], addresses[-1]
    for begin in range(0, min(table.size, SYMBOLS_BYTES_MAX), _CHUNK):
        data = elf.read(table, begin, _CHUNK)
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
