"""What the logs in a bundle say. Pure."""

from firstlight.core.bundle import Bundle
from firstlight.core.log import LogLine


def first_error(bundle: Bundle) -> LogLine | None:
    """The earliest error over all sources; what others print afterwards follows from it."""
    errors = [tail.first_error for tail in bundle.logs if tail.first_error]
    return min(errors, key=lambda line: line.at, default=None)


def is_silent(bundle: Bundle) -> bool:
    """Whether nothing at all was printed."""
    return not any(tail.lines for tail in bundle.logs)


def last_words(bundle: Bundle, pid: int, label: str) -> str:
    """The last line that a process is known to have written; empty if its lines cannot be told from others'."""
    for tail in bundle.logs:
        lines = [line for line in tail.lines if _speaks(line, pid, label)]
        if lines:
            return lines[-1].message
    return ""


def _speaks(line: LogLine, pid: int, label: str) -> bool:
    if line.pid:
        return line.pid == pid
    return bool(line.source) and line.source == label


def last_lines(bundle: Bundle, most: int = 20) -> tuple[LogLine, ...]:
    """The last lines of all sources together, in the order in which they came."""
    lines = sorted((line for tail in bundle.logs for line in tail.lines), key=lambda line: line.at)
    return tuple(lines[-most:])
