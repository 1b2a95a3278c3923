"""Call frame information: for an address of code, where its caller's registers are saved.

DWARF 4, section 6.4, in the form of .eh_frame and .eh_frame_hdr (Linux Standard Base, Core, section 10.6). Pure. What
compilers do not write for functions (expressions, other table encodings) raises `Unsupported`.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

_RECORD_BYTES_MAX = 1 << 16
_KEPT_MAX = 32
_HEADER_OF_TABLE = b"\x01\x1b\x03\x3b"
"""Version 1, frames by pc-relative sdata4, count by udata4, table by header-relative sdata4. All linkers do so."""


class Unsupported(ValueError):
    """Not told, or told in a form that is not read here."""


class Mapped(Protocol):
    """A file by the addresses that it is mapped at."""

    @property
    def eh_frame_header(self) -> int: ...

    def at(self, address: int, length: int) -> bytes: ...


class Row(NamedTuple):
    """How to unwind at one address: the frame's address is register `cfa` plus `offset`, and each register of
    `saved` lies at its offset from there. `cfa` is -1 where it takes an expression to find it. `undefined` names
    registers whose value is lost; for the return address it means that there is no caller."""

    cfa: int
    offset: int
    saved: Mapping[int, int]
    undefined: frozenset[int]
    return_address: int


class _Bytes:
    """A reader that walks through bytes and knows their address."""

    def __init__(self, data: bytes, address: int) -> None:
        self._data = data
        self._begin = address
        self._at = 0

    @property
    def address(self) -> int:
        return self._begin + self._at

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def number(self, code: str) -> int:
        size = struct.calcsize(code)
        (value,) = struct.unpack_from("<" + code, self._data, self._at)
        self._at += size
        return int(value)

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise Unsupported("a record is cut short")
        self._at += count
        return self._data[self._at - count : self._at]

    def unsigned(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value
        raise Unsupported("an endless number")

    def signed(self) -> int:
        begin = self._at
        value = self.unsigned()
        bits = 7 * (self._at - begin)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value

    def encoded(self, encoding: int) -> int:
        """A pointer as DW_EH_PE_* says: its format in the lower half, what it is relative to in the upper."""
        base = {0x00: 0, 0x10: self.address}.get(encoding & 0x70)
        code = {0x00: "Q", 0x02: "H", 0x03: "I", 0x04: "Q", 0x0A: "h", 0x0B: "i", 0x0C: "q"}.get(encoding & 0x0F)
        if base is None or code is None:
            raise Unsupported(f"pointer encoding {encoding:#x}")
        return base + self.number(code)


@dataclass(frozen=True)
class _Common:
    """A CIE: what many functions have in common."""

    code_step: int
    data_step: int
    return_address: int
    pointers: int
    sized: bool
    program: bytes


def row_at(elf: Mapped, address: int) -> Row:
    """How to unwind at `address`.

    Raises:
        Unsupported, ValueError, struct.error: the file does not tell.
    """
    record, at = _record(elf, _find(elf, address))
    common = _common(elf, at - record.number("I"))
    begin = record.encoded(common.pointers)
    length = record.encoded(common.pointers & 0x0F)
    if not begin <= address < begin + length:
        raise Unsupported("this code has no call frame information")
    if common.sized:
        record.take(record.unsigned())
    initial = _run(_Bytes(common.program, 0), common, _State(), _State(), begin=0, until=0)
    state = _run(record, common, initial, initial.copy(), begin=begin, until=address)
    return Row(state.cfa, state.offset, state.saved, frozenset(state.undefined), common.return_address)


def _find(elf: Mapped, address: int) -> int:
    """The FDE that may cover an address, by halving the sorted table of .eh_frame_hdr."""
    header = elf.eh_frame_header
    if elf.at(header, 4) != _HEADER_OF_TABLE:
        raise Unsupported("a table of call frame information in another form")
    (count,) = struct.unpack("<I", elf.at(header + 8, 4))
    low, high, found = 0, count, 0
    while low < high:
        middle = (low + high) // 2
        begins, record = struct.unpack("<ii", elf.at(header + 12 + 8 * middle, 8))
        if header + begins <= address:
            low, found = middle + 1, header + record
        else:
            high = middle
    if not found:
        raise Unsupported("this code has no call frame information")
    return found


def _record(elf: Mapped, address: int) -> tuple[_Bytes, int]:
    """The bytes of a CIE or FDE after its length, and the address that they begin at."""
    (length,) = struct.unpack("<I", elf.at(address, 4))
    if not 4 <= length <= _RECORD_BYTES_MAX:
        raise Unsupported("a record of unbelievable length")
    return _Bytes(elf.at(address + 4, length), address + 4), address + 4


def _common(elf: Mapped, address: int) -> _Common:
    record, _ = _record(elf, address)
    if record.number("I") != 0:
        raise Unsupported("no CIE where one should be")
    version = record.number("B")
    if version not in {1, 3}:
        raise Unsupported(f"CIE version {version}")
    augmentation = bytearray()
    while byte := record.number("B"):
        augmentation.append(byte)
    code_step, data_step = record.unsigned(), record.signed()
    return_address = record.number("B") if version == 1 else record.unsigned()
    pointers, sized = 0, augmentation[:1] == b"z"
    if sized:
        extra = _Bytes(record.take(record.unsigned()), 0)
        pointers = _pointer_encoding(augmentation, extra)
    elif augmentation:
        raise Unsupported(f"augmentation {bytes(augmentation)!r}")
    rest = record.take(record.left)
    return _Common(code_step, data_step, return_address, pointers, sized, rest)


def _pointer_encoding(augmentation: bytearray, extra: _Bytes) -> int:
    pointers = 0
    for letter in augmentation[1:].decode("latin-1"):
        if letter == "R":
            pointers = extra.number("B")
        elif letter == "L":
            extra.number("B")
        elif letter == "P":
            extra.encoded(extra.number("B") & 0x7F)
        elif letter not in "SB":
            raise Unsupported(f"augmentation {letter!r}")
    return pointers


@dataclass
class _State:
    """The row that a program of call frame instructions has built so far."""

    cfa: int = -1
    offset: int = 0
    saved: dict[int, int] = field(default_factory=dict)
    undefined: set[int] = field(default_factory=set)

    def copy(self) -> "_State":
        return replace(self, saved=dict(self.saved), undefined=set(self.undefined))

    def forget(self, register: int) -> None:
        self.saved.pop(register, None)
        self.undefined.discard(register)


def _run(program: _Bytes, common: _Common, initial: _State, state: _State, *, begin: int, until: int) -> _State:
    """Carry out instructions up to the address `until`; `initial` is what the CIE's have built."""
    kept: list[_State] = []
    at = begin
    while program.left:
        opcode = program.number("B")
        high, low = opcode & 0xC0, opcode & 0x3F
        step = _step(program, opcode, common)
        if step is not None:
            at += step
            if at > until:
                return state
        elif high == 0x80:
            state.forget(low)
            state.saved[low] = program.unsigned() * common.data_step
        elif high == 0xC0:
            _restore(state, initial, low)
        elif low == 0x0A:
            if len(kept) >= _KEPT_MAX:
                raise Unsupported("too many states are kept")
            kept.append(state.copy())
        elif low == 0x0B:
            if not kept:
                raise Unsupported("a state is restored that was never kept")
            state = kept.pop()
        else:
            _change(program, low, common, initial, state)
    return state


def _step(program: _Bytes, opcode: int, common: _Common) -> int | None:
    """How far the address moves, None for an instruction of another kind."""
    if opcode & 0xC0 == 0x40:
        return (opcode & 0x3F) * common.code_step
    code = {0x02: "B", 0x03: "H", 0x04: "I"}.get(opcode)
    return program.number(code) * common.code_step if code else None


def _restore(state: _State, initial: _State, register: int) -> None:
    state.forget(register)
    if register in initial.saved:
        state.saved[register] = initial.saved[register]
    if register in initial.undefined:
        state.undefined.add(register)


def _change(  # noqa: PLR0912 - one case an instruction
    program: _Bytes, opcode: int, common: _Common, initial: _State, state: _State
) -> None:
    """DW_CFA_* by number, those without operands in the opcode (DWARF 4, figure 40)."""
    match opcode:
        case 0x00:
            pass
        case 0x05:
            register = program.unsigned()
            state.forget(register)
            state.saved[register] = program.unsigned() * common.data_step
        case 0x06:
            _restore(state, initial, program.unsigned())
        case 0x07:
            register = program.unsigned()
            state.forget(register)
            state.undefined.add(register)
        case 0x08:
            state.forget(program.unsigned())
        case 0x0C:
            state.cfa, state.offset = program.unsigned(), program.unsigned()
        case 0x0D:
            state.cfa = program.unsigned()
        case 0x0E:
            state.offset = program.unsigned()
        case 0x0F:
            state.cfa = -1
            program.take(program.unsigned())
        case 0x10 | 0x16:
            register = program.unsigned()
            program.take(program.unsigned())
            state.forget(register)
            state.undefined.add(register)
        case 0x11:
            register = program.unsigned()
            state.forget(register)
            state.saved[register] = program.signed() * common.data_step
        case 0x12:
            state.cfa, state.offset = program.unsigned(), program.signed() * common.data_step
        case 0x13:
            state.offset = program.signed() * common.data_step
        case 0x2E:
            program.unsigned()
        case _:
            raise Unsupported(f"call frame instruction {opcode:#x}")
