"""The journal of a run: append-only JSON lines; and its state: one small file, replaced whole.

Neither ever raises: a full or vanished disk must not take down the watching of a server. What could not be written is
noted as one gap, tried again with the next event, and counted where it is lost for good. Each line is one write(2) to
a descriptor opened with O_APPEND, so a kill in mid-write costs at most that line, and the reader passes over torn
ones. Everything is redacted on its way in.
"""

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from firstlight.core import redact
from firstlight.core.events import Event, GapNoted, read_event
from firstlight.core.gap import Gap
from firstlight.core.record import Record
from firstlight.core.state import RunState
from firstlight.core.vocabulary import GapReason
from firstlight.supervise.runs.files import replace_file, write_file
from firstlight.supervise.runs.folders import RunFolder

WAITING_LINES_MAX = 1000
"""Lines that are held while the disk refuses them; beyond that the oldest are given up."""

LINE_BYTES_MAX = 64 * 1024 * 1024


def redacted_json(record: Record) -> bytes:
    """The record as one line of JSON, every secret replaced and every text fit to be written, whatever it holds.

    Nothing else is ever written to a run.
    """
    return msgspec.json.encode(redact.plain(msgspec.to_builtins(record)))


def to_line(event: Event) -> bytes:
    """The event as a line of the journal, newline included."""
    return redacted_json(event) + b"\n"


class Journal:
    """The journal of one run, open for appending."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.journal
        self._fd = -1
        self._waiting: deque[bytes] = deque(maxlen=WAITING_LINES_MAX)
        self._torn = False
        self._lost = 0
        self._failing = False
        self._gaps: list[Gap] = list(folder.gaps)

    def write(self, event: Event) -> None:
        """Append an event, and whatever had to wait before it."""
        if len(self._waiting) == WAITING_LINES_MAX:
            self._lost += 1
        self._waiting.append(to_line(event))
        try:
            self._flush()
        except OSError as error:
            self._note_failure(str(error))
        else:
            self._note_recovery(event)

    def take_gaps(self) -> tuple[Gap, ...]:
        """What could not be written, and why the run is not where it should be; each is given once."""
        gaps, self._gaps = tuple(self._gaps), []
        return gaps

    def close(self) -> None:
        """Give up the descriptor; a later write opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _flush(self) -> None:
        if self._fd < 0:
            self._fd = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        while self._waiting:
            # A line that a full disk cut in two is closed first, so that the next one stands alone.
            line = b"\n" * self._torn + self._waiting[0]
            written = os.write(self._fd, line)
            if written < len(line):
                self._torn = self._torn or written > 0
                raise OSError(f"only {written} of {len(line)} bytes could be written")
            self._torn = False
            self._waiting.popleft()

    def _note_failure(self, why: str) -> None:
        if not self._failing:
            self._failing = True
            detail = f"{self._path}: {why}; it is tried again with every event"
            self._gaps.append(Gap(what="journal", reason=GapReason.FAILED, detail=detail))

    def _note_recovery(self, event: Event) -> None:
        self._failing = False
        if self._lost:
            lost, self._lost = self._lost, 0
            gap = Gap(what="journal", reason=GapReason.FAILED, detail=f"{lost} events could not be written")
            self._gaps.append(gap)
            self.write(GapNoted(at=event.at, t=event.t, gap=gap))


def read_journal(path: Path) -> Iterator[Event | Gap]:
    """Every event of a journal in order, a gap for each line that is torn or not understood.

    Raises:
        OSError: the file cannot be opened.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX):
            number += 1
            if line.strip():
                yield _event_or_gap(line, number)


class StateFile:
    """The state of one run, replaced at every write."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def write(self, state: RunState) -> bool:
        """Replace the state; false if it could not be written, and readers will find it stale."""
        data = redacted_json(state)
        try:
            replace_file(self._folder.state, data)
        except OSError:
            return self._overwrite(data)
        return True

    def read(self) -> RunState | Gap:
        """What was last written."""
        return self._folder.read_state()

    def _overwrite(self, data: bytes) -> bool:
        """On a full disk no new file can be made, but the blocks of the old one are still ours.

        Without this a healthy server would be called unwatched, and be killed for it, because a disk is full. A
        reader may see it half written and must then read again.
        """
        try:
            old = self._folder.state.stat().st_size
            write_file(self._folder.state, data.ljust(old))
        except OSError:
            return False
        return True


def _event_or_gap(line: bytes, number: int) -> Event | Gap:
    try:
        return read_event(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        detail = f"it is torn, or from another version of firstlight: {error}"
        return Gap(what=f"line {number} of the journal", reason=GapReason.FAILED, detail=detail)
