"""Which GPU architectures the device code in a section is for: NVIDIA's fatbin containers, clang's offload bundles.

Only headers are read, and what lies between is skipped by its length, so a library of gigabytes costs some thousand
small reads and nothing is decompressed. Nothing is trusted: what does not fit its container ends the container.

NVIDIA does not document the layout. It is as several open readers have it, and what is found here agrees with what
CUDA 13's cuobjdump lists for published libraries of CUDA 11 to 13. A container begins with its magic number, the
length of its header and of what follows; in it entries follow each other, each with its kind, the length of its own
header and of its payload, and the architecture. Bit 20 of an entry's flags marks code of one architecture alone
("90a"), bit 21 that of a family ("100f"), as CUDA 13's fatbinary writes them. The bundles are described in clang's
documentation of its offload bundler.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from firstlight.clock import Deadline

Read = Callable[[int, int], bytes]
"""Bytes of the section from an offset, as many as asked for or as it has."""

_CONTAINER = struct.Struct("<IHHQ")
_CONTAINER_MAGIC = b"\x50\xed\x55\xba"
_ENTRY = struct.Struct("<HHIQIIHHIIIQ")
_PTX, _ELF, _MERCURY = 1, 2, 16
_SUFFIXES = ((1 << 20, "a"), (1 << 21, "f"))

_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED_MAGIC = b"CCOB"
_TARGET = struct.Struct("<QQQ")
_TARGETS_MAX = 256
_NAME_BYTES_MAX = 256

_SEARCH_BYTES = 1 << 16


@dataclass
class Kernels:
    """What was found. `unread` says in words what could not be read, empty if all was; `late` if time ran out."""

    machine_code: set[str] = field(default_factory=set)
    ptx: set[str] = field(default_factory=set)
    unread: str = ""
    late: bool = False

    def stops(self, deadline: Deadline) -> bool:
        """Whether time is up; notes it."""
        if deadline.passed:
            self.unread, self.late = f"not read to its end within {deadline.seconds:g} s", True
        return self.late


def nvidia(read: Read, size: int, deadline: Deadline, kernels: Kernels) -> None:
    """Add what the fatbin containers of a section of `size` bytes hold."""
    at = 0
    while 0 <= at <= size - _CONTAINER.size and not kernels.stops(deadline):
        magic, _, header, length = _CONTAINER.unpack(read(at, _CONTAINER.size))
        if magic != int.from_bytes(_CONTAINER_MAGIC, "little") or header < _CONTAINER.size:
            at = _next(read, at + 1, size, _CONTAINER_MAGIC, deadline)
            continue
        end = at + header + length
        if end > size:
            kernels.unread = "a container is longer than its section"
        _entries(read, at + header, min(end, size), deadline, kernels)
        at = end
    if size and not kernels.machine_code and not kernels.ptx and not kernels.unread:
        kernels.unread = "no container of a kind that is known"


def _entries(read: Read, at: int, end: int, deadline: Deadline, kernels: Kernels) -> None:
    while at + _ENTRY.size <= end and not kernels.stops(deadline):
        kind, _, header, payload, _, _, _, _, architecture, _, _, flags = _ENTRY.unpack(read(at, _ENTRY.size))
        if header < _ENTRY.size or at + header + payload > end or not 10 <= architecture < 1000:
            kernels.unread = "an entry does not fit its container"
            return
        name = str(architecture) + next((suffix for bit, suffix in _SUFFIXES if flags & bit), "")
        if kind == _PTX:
            kernels.ptx.add(name)
        elif kind in (_ELF, _MERCURY):
            kernels.machine_code.add(name)
        at += header + payload


def amd(read: Read, size: int, deadline: Deadline, kernels: Kernels) -> None:
    """Add what the offload bundles of a section of `size` bytes hold. Compressed ones do not list their targets."""
    at = 0
    while 0 <= at < size and not kernels.stops(deadline):
        head = read(at, len(_BUNDLE_MAGIC) + 8)
        if head.startswith(_COMPRESSED_MAGIC):
            kernels.unread = "its device code is compressed"
            return
        if len(head) < len(_BUNDLE_MAGIC) + 8 or not head.startswith(_BUNDLE_MAGIC):
            at = _next(read, at + 1, size, _BUNDLE_MAGIC, deadline)
            continue
        count = int.from_bytes(head[len(_BUNDLE_MAGIC) :], "little")
        at += max(len(head), _targets(read, at, min(count, _TARGETS_MAX), kernels))


def _targets(read: Read, bundle: int, count: int, kernels: Kernels) -> int:
    """Add the targets of one bundle; returns how long it is."""
    at, length = bundle + len(_BUNDLE_MAGIC) + 8, 0
    for _ in range(count):
        row = read(at, _TARGET.size)
        if len(row) < _TARGET.size:
            kernels.unread = "a bundle is longer than its section"
            break
        offset, size, name_length = _TARGET.unpack(row)
        name = read(at + _TARGET.size, min(name_length, _NAME_BYTES_MAX)).decode(errors="replace")
        # "hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-"; the host's own entry has no gfx
        if size and (match := re.search(r"--(gfx[0-9a-z-]{3,20})(?::|$)", name)):
            kernels.machine_code.add(match[1])
        at += _TARGET.size + name_length
        length = max(length, offset + size)
    return length


def cubin(head: bytes) -> str:
    """The architecture of a bare file of machine code (a cubin) by its ELF header; empty if it is none.

    Layout of e_flags by the ELF header's ABI version, from LLVM's ELF.h. CUDA 13 no longer marks "a" there.
    """
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01" or int.from_bytes(head[18:20], "little") != 190:
        return ""
    flags = int.from_bytes(head[48:52], "little")
    number, alone = (flags >> 8 & 0xFF, flags & 0x8) if head[8] >= 8 else (flags & 0xFF, flags & 0x800)
    return f"{number}{'a' if alone else ''}"


def _next(read: Read, at: int, size: int, magic: bytes, deadline: Deadline) -> int:
    """Where the magic number comes next, -1 if it does not. Between containers there is only padding."""
    while at < size and not deadline.passed:
        block = read(at, _SEARCH_BYTES)
        found = block.find(magic)
        if found >= 0:
            return at + found
        if len(block) < _SEARCH_BYTES:
            return -1
        at += _SEARCH_BYTES - len(magic) + 1
    return at if at < size else -1
