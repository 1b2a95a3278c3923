"""The files that processes execute, opened once however many processes map them: ranks stand at the same places."""

import os
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress

from firstlight import procfs
from firstlight.evidence.elf import Elf
from firstlight.evidence.stacks.unwind import symbols
from firstlight.evidence.stacks.unwind.cfi import Row, row_at
from firstlight.evidence.stacks.unwind.image import Image

FILES_MAX = 512
NONSENSE = (ValueError, struct.error, OverflowError, OSError, MemoryError)


class Binary:
    """One file, and what it has told so far. Places are addresses within the file as it was linked.

    Several workers ask at once: what is kept is always whole, and at worst found out twice.
    """

    def __init__(self, elf: Elf, debug: Elf | None) -> None:
        self._elf = elf
        self._image = Image(elf)
        self._debug = debug
        self._rows: dict[int, Row | None] = {}
        self._names: dict[int, str] = {}

    def place(self, mapping: procfs.CodeMapping, address: int) -> int:
        """An address of a process within the file.

        Raises:
            ValueError: the mapping is none of this file's.
        """
        return self._image.address_of_code(mapping.offset) + address - mapping.begin

    def row(self, place: int) -> Row | None:
        """How to unwind at a place, None where the file does not tell."""
        if place not in self._rows:
            row = None
            with suppress(*NONSENSE):
                row = row_at(self._image, place)
            self._rows[place] = row
        return self._rows[place]

    def learn_names(self, places: Iterable[int]) -> None:
        """Look up many names at once: a large library has a million of them."""
        missing = [place for place in places if place not in self._names]
        if not missing:
            return
        names = dict.fromkeys(missing, "")
        sources = ((self._elf, symbols.packed_names), (self._debug, symbols.names), (self._elf, symbols.names))
        for elf, find in sources:
            with suppress(*NONSENSE):
                found = find(elf, missing) if elf else {}
                names |= {place: symbols.readable(name) for place, name in found.items()}
        self._names |= names

    def name(self, place: int) -> str:
        """The function at a place; empty if it has no name, or `learn_names` has not heard of it."""
        return self._names.get(place, "")


class Binaries:
    """Binaries by the identity of their files. They close themselves when the last process is done with them."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Binary | None] = {}

    def of(self, pid: int, mapping: procfs.CodeMapping) -> Binary | None:
        """The file behind a mapping of a process; None if there is none, or it cannot be read."""
        with suppress(*NONSENSE):
            return self._of(pid, mapping)
        return None

    def _of(self, pid: int, mapping: procfs.CodeMapping) -> Binary | None:
        if not mapping.path.startswith("/") or len(self._known) >= FILES_MAX:
            return None
        fd = _open(pid, mapping)
        about = os.fstat(fd)
        key = (about.st_dev, about.st_ino)
        if key in self._known:
            os.close(fd)
            return self._known[key]
        return self._known.setdefault(key, _read(pid, fd))


def _read(pid: int, fd: int) -> Binary | None:
    with suppress(*NONSENSE):
        elf = _elf(fd)
        return Binary(elf, _debug_file(pid, elf))
    return None


def _open(pid: int, mapping: procfs.CodeMapping) -> int:
    """The mapped file itself, where that may be opened (root), else the one of its name as the process sees it."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(f"/proc/{pid}/map_files/{mapping.begin:x}-{mapping.end:x}", flags)
    except OSError:
        if mapping.path.endswith(" (deleted)"):
            raise
        return os.open(f"/proc/{pid}/root{mapping.path}", flags)


def _elf(fd: int) -> Elf:
    """Takes the descriptor over, and closes it with the last reader."""
    file = open(fd, "rb", buffering=0)  # noqa: SIM115 - as long as the ELF file is in use
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise ValueError("no regular file")
    return Elf(lambda offset, length: os.pread(file.fileno(), length, offset))


def _debug_file(pid: int, elf: Elf) -> Elf | None:
    """The names that distributions keep apart (libc6-dbg, debuginfo packages), where they are installed."""
    with suppress(*NONSENSE):
        if build := elf.build_id:
            path = f"/proc/{pid}/root/usr/lib/debug/.build-id/{build[:2]}/{build[2:]}.debug"
            return _elf(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    return None
