"""What one line says of a failure, taken by itself: names it an error, or does it only follow from another one?

Not the "Traceback" header, not the frames, not what other processes say because one of them failed, and not the
noise of a shutdown: the line that names the error. What a line means among its neighbours is for errors.py.
"""

import re

from firstlight.core.log import LogLine
from firstlight.core.told import told_end
from firstlight.engines.table import LOOKED_AT
from firstlight.engines.table import Failures as Table

ERROR_LEVELS = frozenset({"ERROR", "CRITICAL", "FATAL"})
_TRACEBACK = "Traceback (most recent call last)"
_REPEATED = " [repeated "
"""How Ray marks a line that other workers wrote too."""

_EXCEPTION = re.compile(r"(?P<name>[A-Za-z_][\w.]{0,200}+)(?:\([\w.]{1,80}\))?(?:: |:?$)")
_CLASSES = ("Error", "Exception", "Group", "Exit", "Fault", "Interrupt", "Timeout", "NotFound", "Unavailable")
"""How the classes of exceptions are usually called."""
_BODY = re.compile(r"\s|> File \"|[│╭╰╮╯❱┃]|[\^~ ]+$|$")
"""What a traceback is made of besides its last line: frames, boxes that rich draws, marks under the code."""
_SOURCE = re.compile(r"\s+(?:raise |return |assert |File \")")
"""The frames of a traceback quote the line that raises; the one that names the error follows."""

_MILD = re.compile(r"\W{0,2}(?:INFO|DEBUG|TRACE|WARN|WARNING)\b")
"""A level that no format of the engine's knows, and that is no error's."""


def is_header(text: str) -> bool:
    """True for a line that begins a traceback: nothing said stands behind the word. One that holds it all is none."""
    _, found, rest = text.partition(_TRACEBACK)
    return bool(found) and not any(map(str.isalnum, rest.partition(_REPEATED)[0]))


def is_body(text: str) -> bool:
    """True for what may stand within a traceback, and for an empty line."""
    return _BODY.match(text) is not None


def is_exception(text: str) -> bool:
    """True for a line that begins with an exception whose class is called as such classes are."""
    match = _EXCEPTION.match(text)
    return match is not None and match["name"].endswith(_CLASSES)


class Failures:
    """The judgement for one engine: what is an error though its line does not say so, what is a consequence."""

    def __init__(self, *tables: Table) -> None:
        self._errors = tuple(text for table in tables for text in table.errors)
        self._consequences = tuple(text for table in tables for text in table.consequences)
        self._shapes = re.compile("|".join(f"(?:{shape})" for table in tables for shape in table.shapes))

    def is_consequence(self, line: LogLine) -> bool:
        """True if the line follows from another failure, belongs to a shutdown, or tells of an end as wanted."""
        beginning = line.message[:LOOKED_AT]
        if any(text in beginning for text in self._consequences):
            return True
        end = told_end(beginning)
        return end is not None and end.asked and not is_exception(beginning)

    def is_error(self, line: LogLine) -> bool:
        """True if the line names an error, and is no consequence of another."""
        return self._names_error(line.level, line.message[:LOOKED_AT]) and not self.is_consequence(line)

    def _names_error(self, level: str, beginning: str) -> bool:
        if is_header(beginning):
            return False
        if level in ERROR_LEVELS:
            return not is_body(beginning)
        if level or not beginning or _SOURCE.match(beginning) or _MILD.match(beginning):
            return False
        return (
            is_exception(beginning)
            or any(text in beginning for text in self._errors)
            or self._shapes.match(beginning) is not None
            or told_end(beginning) is not None
        )
