"""Which line of a log a person would want to see first when a server fails.

Not the "Traceback" header, not the frames, not what other processes say because one of them failed, and not the
noise of a shutdown: the line that names the error.
"""

import re

from firstlight.core.log import LogLine

_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Fault|Interrupt|Timeout|NotFound|Unavailable)(?:: |$)"
)
_BODY = re.compile(r"\s|Traceback \(most recent call last\)|[\^~ ]+$|$")
_ERROR_LEVELS = frozenset({"ERROR", "CRITICAL", "FATAL"})
_LOOKED_AT = 300
"""Characters of a message that are looked at; errors name themselves early."""


class Failures:
    """The judgement for one engine: what is an error though its line does not say so, what is a consequence."""

    def __init__(self, errors: tuple[str, ...], consequences: tuple[str, ...]) -> None:
        self._errors = errors
        self._consequences = consequences

    def is_consequence(self, line: LogLine) -> bool:
        """True if the line follows from another failure, or belongs to a shutdown."""
        beginning = line.message[:_LOOKED_AT]
        return any(text in beginning for text in self._consequences)

    def is_error(self, line: LogLine) -> bool:
        """True if the line names an error, and is no consequence of another."""
        beginning = line.message[:_LOOKED_AT]
        return self._names_error(line.level, beginning) and not self.is_consequence(line)

    def _names_error(self, level: str, beginning: str) -> bool:
        if level in _ERROR_LEVELS and not _BODY.match(beginning):
            return True
        if level in {"INFO", "DEBUG", "WARNING"}:
            return False
        return _EXCEPTION.match(beginning) is not None or any(text in beginning for text in self._errors)
