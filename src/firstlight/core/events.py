"""The journal's events, declared in one table: one class an event, its fields are the event's fields.

Every event is one JSON object on one line with `type`, `at` (wall clock, Unix seconds) and `t` (seconds since the
attempt began, from the monotonic clock, so that it survives clock jumps). `firstlight up --json` prints the same
objects as they happen; the last one is `verdict`.
"""

from typing import TypeAlias

import msgspec

from firstlight.core.gap import Gap
from firstlight.core.log import Counter
from firstlight.core.process import Exit, Process
from firstlight.core.record import Record
from firstlight.core.report import FirstToken, Report
from firstlight.core.vocabulary import Motion, Phase, Signal


class Started(Record, tag_field="type", tag="started"):
    """The attempt began. `pid` is the server's first process."""

    at: float
    t: float
    run: str
    engine: str
    command: tuple[str, ...]
    pid: int
    url: str
    folder: str
    attached: bool = False


class ProcessAppeared(Record, tag_field="type", tag="process_appeared"):
    at: float
    t: float
    process: Process


class ProcessGone(Record, tag_field="type", tag="process_gone"):
    at: float
    t: float
    exit: Exit


class PhaseBegan(Record, tag_field="type", tag="phase_began"):
    at: float
    t: float
    phase: Phase
    source: str
    rank: int
    text: str


class PhaseEnded(Record, tag_field="type", tag="phase_ended"):
    at: float
    t: float
    phase: Phase
    source: str
    rank: int
    seconds: float


class Progress(Record, tag_field="type", tag="progress"):
    """A counter moved. `eta_s` is the estimated seconds left, None until there is a rate."""

    at: float
    t: float
    phase: Phase
    counter: Counter
    eta_s: float | None


class MotionChanged(Record, tag_field="type", tag="motion"):
    """Moving, slow, quiet or stalled; `why` is the sentence, `signals` what was measured. Quiet is told again once
    it is known that somebody sleeps."""

    at: float
    t: float
    motion: Motion
    phase: Phase
    why: str
    signals: tuple[Signal, ...]
    quiet_s: float


class LogSeen(Record, tag_field="type", tag="log"):
    """A new line of the server's log, redacted. `notable` are warnings, errors and what moves a phase; the journal
    has only those, since the log itself is kept whole beside it. `first_error` is set where the line is the first
    error as far as it is known by then; a later one that has it too names what this one only introduced.
    """

    at: float
    t: float
    stream: str
    source: str
    level: str
    text: str
    notable: bool = True
    first_error: bool = False


class Verifying(Record, tag_field="type", tag="verifying"):
    """The port answers, and a first token is being asked for; or an answer came that is not a token yet."""

    at: float
    t: float
    url: str
    what: str


class TokenVerified(Record, tag_field="type", tag="token_verified"):
    at: float
    t: float
    token: FirstToken


class Looked(Record, tag_field="type", tag="looked"):
    """Evidence was collected, because of `why`."""

    at: float
    t: float
    why: str
    took_s: float
    bundle: str


class GapNoted(Record, tag_field="type", tag="gap"):
    at: float
    t: float
    gap: Gap


class Stopping(Record, tag_field="type", tag="stopping"):
    at: float
    t: float
    why: str


class Stopped(Record, tag_field="type", tag="stopped"):
    """The server has been ended and it was verified that nothing is left; or what is left."""

    at: float
    t: float
    asked: int
    killed: int
    left: tuple[str, ...]


class Verdict(Record, tag_field="type", tag="verdict"):
    """The last event: the whole report."""

    at: float
    t: float
    report: Report


Event: TypeAlias = (
    Started
    | ProcessAppeared
    | ProcessGone
    | PhaseBegan
    | PhaseEnded
    | Progress
    | MotionChanged
    | LogSeen
    | Verifying
    | TokenVerified
    | Looked
    | GapNoted
    | Stopping
    | Stopped
    | Verdict
)

_decoder = msgspec.json.Decoder(Event)


def read_event(line: bytes) -> Event:
    """Parse one line of a journal.

    Raises:
        msgspec.DecodeError: the line is torn (a crash in mid-write) or not an event.
    """
    return _decoder.decode(line)
