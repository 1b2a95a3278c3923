"""The last words of every source of the log, its warnings and its first error. Pure."""

import re
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from firstlight.core import redact
from firstlight.core.bundle import LogTail
from firstlight.core.log import ErrorSeen, LogLine

LINES_MAX = 30
SOURCES_MAX = 256
WARNINGS_MAX = 60

_WARNING_LEVELS = frozenset({"WARN", "WARNING", "ERROR", "CRITICAL", "FATAL", "E", "W"})
_WARNS = re.compile(
    r"\b(NCCL WARN|WARNING|UserWarning|RuntimeWarning|CRITICAL)\b|^\s{0,8}\[?W\d{4} |\[rank\d{1,6}\]:W\d{4} "
)
"""What warns in a line whose level its engine's profile does not know (NCCL, torch, Python)."""


class _Tail:
    """One source's last lines; a line that repeats the one before it, digits aside, takes its place. Of its warnings
    each shape is kept once, as it was first said; the earliest of them, since what follows is often consequence."""

    def __init__(self) -> None:
        self.lines: deque[LogLine] = deque(maxlen=LINES_MAX)
        self.first_error: LogLine | None = None
        self.warnings: dict[str, LogLine] = {}
        self._last_shape = ""

    def add(self, line: LogLine, seen: ErrorSeen) -> None:
        if seen.named and (self.first_error is None or seen.instead_of is self.first_error):
            self.first_error = line
        shape = shape_of(line.message)
        if len(self.warnings) < WARNINGS_MAX and (seen.named or warns(line)):
            self.warnings.setdefault(shape, line)
        if shape == self._last_shape and self.lines:
            self.lines.pop()
        self.lines.append(line)
        self._last_shape = shape


def shape_of(message: str) -> str:
    """A message without its digits: two lines of one shape say the same thing again."""
    return re.sub(r"\d+", "#", message).strip()


def warns(line: LogLine) -> bool:
    """Whether a line warns of something or reports an error, by its level or by its own words."""
    return line.level.upper() in _WARNING_LEVELS or _WARNS.search(line.message) is not None


def tails(lines: Iterable[LogLine], read_error: Callable[[LogLine], ErrorSeen]) -> tuple[LogTail, ...]:
    """The tail of every source, in the order in which the sources first spoke. Secrets are replaced.

    `read_error` is shown every line, in order, and tells which ones name an error.
    """
    by_source: dict[str, _Tail] = {}
    for line in lines:
        seen = read_error(line)
        source = line.source or line.stream
        if not line.message.strip() or (source not in by_source and len(by_source) >= SOURCES_MAX):
            continue
        by_source.setdefault(source, _Tail()).add(line, seen)
    return tuple(
        LogTail(
            source=source,
            lines=tuple(map(_redacted, tail.lines)),
            first_error=_redacted(tail.first_error) if tail.first_error else None,
            warnings=tuple(map(_redacted, tail.warnings.values())),
        )
        for source, tail in by_source.items()
    )


def _redacted(line: LogLine) -> LogLine:
    return msgspec.structs.replace(line, text=redact.text(line.text), message=redact.text(line.message))
