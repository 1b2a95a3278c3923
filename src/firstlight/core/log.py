"""A line of the server's log, as captured and as understood."""

from typing import NamedTuple

from firstlight.core.record import Record
from firstlight.core.vocabulary import Phase


class RawLine(Record):
    """One line as it came. `transient` marks a progress update that a carriage return would overwrite.

    Text is UTF-8 with replacement characters; terminal escapes and control characters are gone, and lines
    beyond 4,096 characters are cut.
    """

    stream: str
    at: float
    text: str
    transient: bool = False


class LogLine(Record):
    """A line with the engine's own prefix understood.

    `source` is the engine's word for the process ("Worker_TP0", "TP0", "EngineCore"), empty if the line does not
    say. `pid` is 0 and `rank` -1 if it does not say. `message` is the text without prefix.
    """

    stream: str
    at: float
    text: str
    message: str
    source: str = ""
    pid: int = 0
    rank: int = -1
    level: str = ""
    transient: bool = False


class ErrorSeen(NamedTuple):
    """Whether a line names an error, and which earlier line it thereby takes the place of.

    A headline ("Error when initializing model") is the error only until the line under it says which one it is.
    """

    named: bool = False
    instead_of: LogLine | None = None


class Counter(Record):
    """Progress read from a line: `done` of `total` in `unit` ("shards", "batches", "bytes")."""

    done: float
    total: float
    unit: str

    @property
    def fraction(self) -> float:
        return self.done / self.total if self.total > 0 else 0.0


class PhaseMark(Record):
    """A line that moves a phase. `ends` is true where the line closes the phase rather than opens it."""

    phase: Phase
    at: float
    source: str = ""
    pid: int = 0
    rank: int = -1
    ends: bool = False
    text: str = ""


class PhaseSpan(Record):
    """A phase of one source with its beginning and, once known, its end (monotonic-based wall seconds)."""

    phase: Phase
    source: str
    began: float
    ended: float | None = None
    rank: int = -1
