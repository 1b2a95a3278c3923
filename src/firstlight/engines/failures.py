"""Which line of a log a person would want to see first when a server fails.

Not the "Traceback" header, not the frames, not what other processes say because one of them failed, and not the
noise of a shutdown: the line that names the error.
"""

import re

from firstlight.core.log import LogLine
from firstlight.engines.table import LOOKED_AT

_EXCEPTION = re.compile(
    r"(?:\[rank\d+\]: ?)?(?:[A-Za-z_]\w*\.)*[A-Z]\w*"
    r"(?:Error|Exception|Exit|Fault|Interrupt|Timeout|NotFound|Unavailable)(?:: |$)"
)
_SHELL = re.compile(
    r"(?:.{0,100}: line \d+: +\d+ )?(?:Killed|Segmentation fault|Bus error|Aborted|Illegal instruction)\b"
)
"""What a shell says of a child that a signal ended."""
_GLOG = re.compile(r"(?:\[rank\d+\]: ?)?\[?[EF]\d{4} \d\d:\d\d:\d\d")
"""Errors of PyTorch's C++ parts: "[rank0]:[E1129 12:42:22.816 ProcessGroupNCCL.cpp:616] …"."""
_BODY = re.compile(r"\s|Traceback \(most recent call last\)|[\^~ ]+$|$")
_SOURCE = re.compile(r"\s+(?:raise |return |assert |File \")")
"""The frames of a traceback quote the line that raises; the one that names the error follows."""
_ERROR_LEVELS = frozenset({"ERROR", "CRITICAL", "FATAL"})


class Failures:
    """The judgement for one engine: what is an error though its line does not say so, what is a consequence."""

    def __init__(self, errors: tuple[str, ...], consequences: tuple[str, ...]) -> None:
        self._errors = errors
        self._consequences = consequences

    def is_consequence(self, line: LogLine) -> bool:
        """True if the line follows from another failure, or belongs to a shutdown."""
        beginning = line.message[:LOOKED_AT]
        return any(text in beginning for text in self._consequences)

    def is_error(self, line: LogLine) -> bool:
        """True if the line names an error, and is no consequence of another."""
        return self._names_error(line.level, line.message[:LOOKED_AT]) and not self.is_consequence(line)

    def _names_error(self, level: str, beginning: str) -> bool:
        if level in _ERROR_LEVELS:
            return not _BODY.match(beginning)
        if level or _SOURCE.match(beginning):
            return False
        shapes = (_EXCEPTION, _SHELL, _GLOG)
        return any(shape.match(beginning) for shape in shapes) or any(text in beginning for text in self._errors)
