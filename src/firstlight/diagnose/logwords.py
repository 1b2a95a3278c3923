"""What the logs in a bundle say. Pure."""

from firstlight.core.bundle import Bundle
from firstlight.core.log import LogLine
from firstlight.core.process import Process


def first_error(bundle: Bundle) -> LogLine | None:
    """The earliest error over all sources; what others print afterwards follows from it."""
    errors = [tail.first_error for tail in bundle.logs if tail.first_error]
    return min(errors, key=lambda line: line.at, default=None)


def last_words(bundle: Bundle, process: Process) -> str:
    """The last line that a process is known to have written; empty if its lines cannot be told from others'."""
    for tail in bundle.logs:
        lines = [line for line in tail.lines if _speaks(line, process)]
        if lines:
            return lines[-1].message
    return ""


def _speaks(line: LogLine, process: Process) -> bool:
    if line.pid:
        return line.pid == process.id.pid
    return bool(line.source) and line.source == process.label
