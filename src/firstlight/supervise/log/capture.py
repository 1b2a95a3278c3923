"""Follows a log file that grows, and makes lines of whatever a program writes.

Programs write more than lines: progress bars that a carriage return redraws, colours and cursor moves, prompts
without an end, half characters at the edge of a read, NULs, megabytes without a newline. All of it comes out as
`RawLine`, at a bounded cost in time and memory; the file itself keeps every byte.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from firstlight.clock import Clock
from firstlight.core.log import RawLine

LINE_CHARS = 4096
READ_BYTES = 1 << 20
"""How much one call reads."""
BEHIND_BYTES = 8 << 20
"""A follower that is further behind than this skips to the last `READ_BYTES` of the file, and says so."""
STILL_S = 0.5
"""An unfinished line that has not grown for so long is shown as it stands: a prompt, or a bar between two moves."""

_SEGMENT_BYTES = 4 * LINE_CHARS + 4096
"""Enough bytes for the longest line, four a character, with some escapes among them; more is not kept."""
_ENDS = re.compile(rb"\n|\r\r*\n|\r\r*(?=[^\n])")
"""End of a line, or return to its start. A return at the very end of the data may still become either.

Every branch begins with a plain character, by which the search is some ten times faster.
"""
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor moves, erasures; a cut one ends with the line
    r"|\x9b[0-?]*[ -/]*[@-~]?"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC: titles, links; unterminated to the end
    r"|\x1b[ -/]*[0-~]?"
)
_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f"
    "\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"  # marks that would turn a terminal's line around, or break it
)


def clean(segment: bytes) -> str:
    """The text of one line: UTF-8 with replacements, no escapes, no control characters, at most 4,096 characters."""
    text = segment.decode("utf-8", errors="replace")
    if not text.isprintable():
        text = _UNSHOWABLE.sub("", _ESCAPES.sub("", text)).replace("\t", "    ")
    text = text.rstrip()
    return text if len(text) <= LINE_CHARS else text[: LINE_CHARS - 1] + "…"


class LogFollower:
    """Reads what is new of one stream's file. The file may not exist yet."""

    def __init__(self, path: Path, stream: str, clock: Clock) -> None:
        self.path = path
        self.stream = stream
        self._clock = clock
        self._fd = -1
        self._offset = 0
        self._open: bytes = b""
        self._open_since = 0.0
        self._open_shown = True
        self._size()

    @property
    def bytes_seen(self) -> int:
        """How far into the file this follower is; what it skipped counts as seen."""
        return self._offset

    def read(self, max_bytes: int = READ_BYTES) -> list[RawLine]:
        """What is new, up to `max_bytes`. Of progress updates that follow each other only the last is kept."""
        lines = list(self._skipped())
        data = self._next(max_bytes)
        lines += self._lines(data) if data else self._still()
        return _last_of_each_run(lines)

    def backlog(self) -> Iterator[RawLine]:
        """Everything that is there, in as many reads as it takes; not more, however fast a program writes on."""
        for _ in range(2 * BEHIND_BYTES // READ_BYTES):  # the first read skips, if it is further behind than that
            before = self._offset
            yield from self.read()
            if self._offset == before:
                return

    def rest(self) -> Iterator[RawLine]:
        """Everything that is left of a server that has ended, to its last words, even if they lack an end of line."""
        yield from self.backlog()
        yield from self._closed_line()

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _closed_line(self) -> list[RawLine]:
        text = clean(self._open)
        self._open = b""
        self._open_shown = True
        return [self._line(text)] if text else []

    def _skipped(self) -> Iterator[RawLine]:
        size = self._size()
        if size - self._offset <= BEHIND_BYTES:
            return
        yield from self._closed_line()
        skipped = size - READ_BYTES - self._offset
        self._offset += skipped
        yield self._line(f"[firstlight: {skipped:,} bytes of the log were skipped here; {self.path} has them all]")

    def _size(self) -> int:
        if self._fd < 0:
            try:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError:
                return 0
        return os.fstat(self._fd).st_size

    def _next(self, max_bytes: int) -> bytes:
        there = self._size() - self._offset
        if there <= 0:
            return b""
        try:
            data = os.pread(self._fd, min(max_bytes, there), self._offset)
        except OSError:
            return b""
        self._offset += len(data)
        return data

    def _lines(self, data: bytes) -> Iterator[RawLine]:
        begin, data = 0, self._open + data
        for end in _ENDS.finditer(data):
            text = clean(data[begin : min(end.start(), begin + _SEGMENT_BYTES)])
            begin = end.end()
            if text:
                yield self._line(text, transient=not end.group().endswith(b"\n"))
        self._open = _bounded(data[begin:])
        self._open_since = self._clock.monotonic()
        self._open_shown = False

    def _still(self) -> Iterator[RawLine]:
        if self._open_shown or self._clock.monotonic() - self._open_since < STILL_S:
            return
        self._open_shown = True
        text = clean(self._open)
        if text:
            yield self._line(text, transient=True)

    def _line(self, text: str, *, transient: bool = False) -> RawLine:
        return RawLine(stream=self.stream, at=self._clock.wall(), text=text, transient=transient)


def _bounded(segment: bytes) -> bytes:
    """The part of an unfinished line that can still matter; a return at its end is kept: a newline may follow."""
    if len(segment) <= _SEGMENT_BYTES:
        return segment
    return segment[: _SEGMENT_BYTES - 1] + (b"\r" if segment.endswith(b"\r") else b"")


def _last_of_each_run(lines: list[RawLine]) -> list[RawLine]:
    following = [*lines[1:], None] if lines else []
    return [line for line, after in zip(lines, following, strict=True) if not _overwritten(line, after)]


def _overwritten(line: RawLine, after: RawLine | None) -> bool:
    return line.transient and after is not None and after.transient
