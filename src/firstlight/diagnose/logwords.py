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


class LastWords:
    """The last line that each process is known to have written: by its pid, or where lines name none by its label."""

    def __init__(self, bundle: Bundle) -> None:
        self._said: dict[int | str, tuple[int, int, str]] = {}
        for tail, one in enumerate(bundle.logs):
            for at, line in enumerate(one.lines):
                speaker = line.pid or line.source
                known = self._said.get(speaker)
                if known is None or known[0] == -tail:
                    self._said[speaker] = (-tail, at, line.message)

    def of(self, pid: int, label: str) -> str:
        """The last line of the first tail that has one of it; empty if its lines cannot be told from others'."""
        speakers = filter(None, (pid, label))
        return max((self._said[one] for one in speakers if one in self._said), default=(0, 0, ""))[2]


def last_lines(bundle: Bundle, most: int = 20) -> tuple[LogLine, ...]:
    """The last lines of all sources together, in the order in which they came."""
    lines = sorted((line for tail in bundle.logs for line in tail.lines), key=lambda line: line.at)
    return tuple(lines[-most:])
