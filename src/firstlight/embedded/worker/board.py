"""The stamps of all ranks in memory that they share: what each does now, for its peers, the front and anyone else.

Whoever starts the ranks makes the board, an anonymous file named "firstlight-stamps" (memfd_create(2)), and every
rank inherits it. A rank's working thread writes its own stamp, and no helper thread does, so that a stamp stops when
the work stops. From outside the file is found among the links /proc/PID/fd/* as "/memfd:firstlight-stamps (deleted)"
and can be opened and read there. All numbers have the machine's own byte order:

    offset  0   8 bytes   "FLSTAMP1"
    offset  8   int64     number of ranks
    offset 16   int64     1 + the rank that spoke first of what went wrong, or 0
    offset 512 * (1 + rank), the rank's record:
             0  int64     which collective it has entered: its count << 32 | a checksum of what it is
            64  two slots of 192 bytes, written in turn; the whole one with the higher serial number is the stamp:
                  0  uint32  CRC-32 (zlib) of the 156 bytes that follow
                  4  uint32  pid
                  8  int64   serial number of the stamp
                 16  int64   CLOCK_MONOTONIC of the stamp, nanoseconds
                 24  int64   steps: units of real work done (pieces of weights, layers, collectives)
                 32  int64   pass: the forward pass it works on or waits for; -2**62 before the first
                 40  int64   number of its latest collective in that pass
                 48  int64   bytes that it brings to that collective
                 56  char[24]  phase
                 80  char[80]  what it does or waits for now

A writer that is killed or stopped in the middle spoils one slot, and the other still tells the stamp before.
"""

import contextlib
import fcntl
import mmap
import os
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from typing import NamedTuple

NAME = "firstlight-stamps"
MAGIC = b"FLSTAMP1"
RECORD = 512
SLOTS = 64
SLOT = 192
BODY = struct.Struct("=Iqqqqqq24s80s")
BODY_AT = 4
TRIES = 100
CLAIM_AT = 2
"""The word, of eight bytes, that holds who spoke first."""
LOCK_DEADLINE_S = 0.5
NO_PASS = -(1 << 62)
"""Before any pass, however passes are numbered."""


class RankStamp(NamedTuple):
    """What one rank said last of itself. `serial` 0: it has not begun."""

    pid: int
    serial: int
    at_ns: int
    steps: int
    number: int
    collective: int
    size: int
    phase: str
    what: str

    @property
    def place(self) -> str:
        """Where the rank is, in words."""
        if self.collective and self.number != NO_PASS:
            return f"{self.what} of pass {self.number}"
        return self.what or f"phase {self.phase}"

    @property
    def age_s(self) -> float:
        """Seconds since the rank's working thread showed life."""
        return max(0, time.monotonic_ns() - self.at_ns) / 1e9


NOTHING = RankStamp(0, 0, 0, 0, NO_PASS, 0, 0, "spawn", "")


def create(ranks: int) -> int:
    """A new board; returns its file descriptor."""
    fd = os.memfd_create(NAME)
    os.ftruncate(fd, RECORD * (1 + ranks))
    os.pwrite(fd, MAGIC + struct.pack("=q", ranks), 0)
    return fd


class Board:
    """Everyone's stamps, to read. The descriptor stays the caller's."""

    def __init__(self, fd: int) -> None:
        self.memory = mmap.mmap(fd, 0)
        if self.memory[:8] != MAGIC:
            raise ValueError(f"file descriptor {fd} holds no board of stamps")
        self.words = memoryview(self.memory).cast("q")
        self.ranks = self.words[1]
        self._fd = fd

    def read(self, rank: int) -> RankStamp:
        """The latest whole stamp of a rank."""
        start = RECORD * (1 + rank) + SLOTS
        for _ in range(TRIES):
            raw = self.memory[start : start + 2 * SLOT]
            found = [stamp for slot in (raw[:SLOT], raw[SLOT:]) if (stamp := _decode(slot)) is not None]
            if found:
                return max(found, key=lambda stamp: stamp.serial)
        return NOTHING

    def entered(self, rank: int) -> int:
        """Which collective a rank has entered last: see the layout."""
        return self.words[_word_of(rank)]

    def claim(self, rank: int) -> bool:
        """Whether `rank` is the first to say what went wrong; the others' messages would only repeat it."""
        with self._locked():
            if self.words[CLAIM_AT] == 0:
                self.words[CLAIM_AT] = 1 + rank
        return self.claimed == rank

    @property
    def claimed(self) -> int:
        """The rank that spoke first of what went wrong; -1 if none has."""
        return self.words[CLAIM_AT] - 1

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the board's lock. One who was stopped while he held it is waited for only so long, and one who may
        open no more files goes without: what he has to say matters more than who says it first."""
        try:
            # flock(2) is of an open description, so have our own.
            lock = os.open(f"/proc/self/fd/{self._fd}", os.O_RDWR)
        except OSError:
            yield
            return
        until = time.monotonic() + LOCK_DEADLINE_S
        try:
            while not _try_lock(lock) and time.monotonic() < until:
                time.sleep(0.001)
            yield
        finally:
            os.close(lock)


class OwnStamp:
    """The stamp of this process's rank, to write. Every method writes it; that takes about a microsecond."""

    def __init__(self, board: Board, rank: int) -> None:
        self.phase = NOTHING.phase
        self.steps = 0
        self.number = NO_PASS
        """The pass; see the layout."""
        self.collective = 0
        self.what = ""
        self._bytes = 0
        self._resting = False
        self._serial = 0
        self._pid = os.getpid()
        self._memory = board.memory
        self._words = board.words
        self._word = _word_of(rank)
        self._start = RECORD * (1 + rank) + SLOTS
        self.write()

    def enter(self, phase: str) -> None:
        """Begin a phase."""
        self.phase, self.what = phase, ""
        self.beat()

    def beat(self) -> None:
        """A piece of work was done."""
        self.steps += 1
        self.write()

    def begin(self, number: int, what: str) -> None:
        """Come to a pass; its collectives are counted from 1."""
        self.number, self.collective, self.what = number, 0, what
        self._resting = False
        self.write()

    def rest(self) -> None:
        """Wait for the next pass, or show that one still does."""
        if self._resting:
            self.write()
            return
        if self.number == NO_PASS:
            self.begin(NO_PASS, "the wait for the first pass")
        else:
            self.begin(self.number + 1, f"the wait for pass {self.number + 1}")
        self._resting = True

    def meet(self, what: str, size: int) -> None:
        """Come to the next collective of the pass, with so many bytes."""
        self.collective += 1
        self._bytes, self.what = size, what
        self.beat()

    def mark(self, word: int) -> None:
        """Say in one store which collective this is, for those who watch for it."""
        self._words[self._word] = word

    def write(self) -> None:
        """Write the stamp as of now: a sign of life."""
        self._serial += 1
        body = BODY.pack(
            self._pid,
            self._serial,
            time.monotonic_ns(),
            self.steps,
            self.number,
            self.collective,
            self._bytes,
            self.phase.encode(),
            self.what.encode(),
        )
        start = self._start + SLOT * (self._serial & 1)
        self._memory[start : start + BODY_AT + BODY.size] = zlib.crc32(body).to_bytes(BODY_AT, sys.byteorder) + body


def _word_of(rank: int) -> int:
    return RECORD * (1 + rank) // 8


def _decode(slot: bytes) -> RankStamp | None:
    body = slot[BODY_AT : BODY_AT + BODY.size]
    if zlib.crc32(body) != int.from_bytes(slot[:BODY_AT], sys.byteorder):
        return None
    fields = BODY.unpack(body)
    return RankStamp._make((*fields[:-2], _text(fields[-2]) or NOTHING.phase, _text(fields[-1])))


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("utf-8", "replace")


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
