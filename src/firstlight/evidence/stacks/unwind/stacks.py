"""Unwind the native stacks of the threads of a process that wait, from outside and without stopping it.

Where a thread that waits in the kernel has left its own code, /proc/PID/task/TID/syscall tells: stack pointer and
program counter. The call frame information of the files that are mapped tells the rest, and the stack itself is read
through /proc/PID/mem. Nothing is stopped and no call is cut short, so it does not wake a stall; a stack counts only
if its thread has not been on a CPU meanwhile, or is found unchanged a second time.

Registers besides these two are known only once a frame has saved them. A stack that needs another one ends early,
as does one that leads through code without call frame information; an empty frame at its end says so.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core.look import NativeFrame
from firstlight.evidence.stacks.unwind.binaries import Binaries, Binary
from firstlight.evidence.stacks.unwind.cfi import Row

THREADS_MAX = 512
FRAMES_MAX = 128
NAME_MAX = 400
TRIES = 10
RUNNING_MAX = 5
"""So often in a row a thread is found on a CPU before it is taken for one that computes."""
RETRY_S = 0.001
"""A thread that polls for a lock is on a CPU now and then."""
CUT = NativeFrame(function="")
"""The last frame of a stack whose outer part could not be read."""

_STACK_POINTER = 7  # DWARF's number on x86-64 (System V ABI, AMD64 supplement, figure 3.36)
_PAGE = 4096


def waiting_stacks(
    pid: int, binaries: Binaries, clock: Clock, deadline: Deadline
) -> dict[int, tuple[NativeFrame, ...]]:
    """The native frames of each thread that waits, innermost first; those that run are missing. May block.

    Raises:
        OSError: the process is gone, or may not be read.
    """
    code = _Code(pid, binaries)
    walks: dict[int, list[int]] = {}
    for tid in sorted(procfs.tids(pid), key=lambda tid: (tid != pid, tid))[:THREADS_MAX]:
        if deadline.passed:
            break
        with suppress(FileNotFoundError, ProcessLookupError):
            if walk := _walk_still(pid, tid, code, clock):
                walks[tid] = walk
    code.learn_names({address for walk in walks.values() for address in walk}, deadline)
    return {tid: tuple(map(code.frame, walk)) for tid, walk in walks.items()}


class _Stand(NamedTuple):
    """Where a thread stands, and how often it has left a CPU."""

    position: procfs.Position | None
    switches: int


def _stand(pid: int, tid: int) -> _Stand:
    status = procfs.status(pid, tid)
    switches = int(status["voluntary_ctxt_switches"]) + int(status["nonvoluntary_ctxt_switches"])
    return _Stand(procfs.position(pid, tid), switches)


def _walk_still(pid: int, tid: int, code: "_Code", clock: Clock) -> list[int]:
    """The addresses of a thread's frames; none if it would not stand still for as long as the reading takes.

    One that wakes up all the time to ask for a lock does not: it counts if it was found in the same place, with the
    same frames, twice in a row.
    """
    earlier = None
    running = 0
    for attempt in range(TRIES):
        if attempt:
            clock.sleep(RETRY_S)
        before = _stand(pid, tid)
        if before.position is None:
            running += 1
            if running == RUNNING_MAX:
                break
            continue
        running = 0
        walk = list(_walk(before.position, code, _Memory(pid)))
        if _stand(pid, tid) == before or (before.position, walk) == earlier:
            return walk
        earlier = (before.position, walk)
    return []


class _Memory:
    """The memory of a process, by pages, each read once."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._pages: dict[int, bytes] = {}

    def word(self, address: int) -> int:
        """The eight bytes at an address.

        Raises:
            struct.error, OSError, OverflowError: there is no memory.
        """
        page = address & -_PAGE
        if page not in self._pages:
            self._pages[page] = procfs.memory(self._pid, page, 2 * _PAGE)
        (value,) = struct.unpack_from("<Q", self._pages[page], address - page)
        return int(value)


def _walk(position: procfs.Position, code: "_Code", memory: _Memory) -> Iterator[int]:
    """An address within every frame, innermost first; 0 at the end if there are more that could not be found."""
    registers = {_STACK_POINTER: position.stack_pointer}
    address = position.program_counter
    for _ in range(FRAMES_MAX):
        yield address
        row = code.row(address)
        if row is not None and row.return_address in row.undefined:
            return
        try:
            caller = _caller(row, registers, memory) if row else None
        except (struct.error, OSError, OverflowError):
            caller = None
        if caller is None:
            break
        if caller == 0:
            return
        address = caller - 1  # within the call, which may be the last instruction of its function
    yield 0


def _caller(row: Row, registers: dict[int, int], memory: _Memory) -> int | None:
    """The return address of a frame, whose caller's registers take the place of its own; None if it is not told."""
    if row.cfa not in registers or row.return_address not in row.saved:
        return None
    frame = registers[row.cfa] + row.offset
    if frame <= registers[_STACK_POINTER]:
        return None
    saved = {register: memory.word(frame + offset) for register, offset in row.saved.items()}
    for register in row.undefined:
        registers.pop(register, None)
    registers |= saved
    registers[_STACK_POINTER] = frame
    return saved[row.return_address]


class _Code:
    """What a process executes: the files that are mapped, and what they tell of an address."""

    def __init__(self, pid: int, binaries: Binaries) -> None:
        self._pid = pid
        self._binaries = binaries
        self._mappings = procfs.code_mappings(pid)
        self._begins = [one.begin for one in self._mappings]
        self._by_begin: dict[int, Binary | None] = {}

    def row(self, address: int) -> Row | None:
        """How to unwind at an address, None where it is not told."""
        binary, place = self._place(address)
        return binary.row(place) if binary else None

    def learn_names(self, addresses: Iterable[int], deadline: Deadline) -> None:
        """Look up the functions of many addresses, file by file."""
        places: dict[Binary, list[int]] = {}
        for binary, place in map(self._place, addresses):
            if binary:
                places.setdefault(binary, []).append(place)
        for binary, those in places.items():
            if not deadline.passed:
                binary.learn_names(those)

    def frame(self, address: int) -> NativeFrame:
        """An address as people know it."""
        mapping = self._mapping(address)
        if mapping is None:
            return CUT
        binary, place = self._place(address)
        library = Path(mapping.path.removesuffix(" (deleted)")).name.encode(errors="replace").decode()
        return NativeFrame(function=binary.name(place)[:NAME_MAX] if binary else "", library=library[:NAME_MAX])

    def _mapping(self, address: int) -> procfs.CodeMapping | None:
        at = bisect_right(self._begins, address) - 1
        return self._mappings[at] if at >= 0 and address < self._mappings[at].end else None

    def _place(self, address: int) -> tuple[Binary | None, int]:
        mapping = self._mapping(address)
        if mapping is None:
            return None, 0
        if mapping.begin not in self._by_begin:
            self._by_begin[mapping.begin] = self._binaries.of(self._pid, mapping)
        binary = self._by_begin[mapping.begin]
        with suppress(ValueError):
            return binary, binary.place(mapping, address) if binary else 0
        return None, 0
