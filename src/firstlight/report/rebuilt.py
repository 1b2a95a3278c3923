"""A report made from a journal alone, for a run whose firstlight was killed before it could say its verdict."""

from collections import deque
from collections.abc import Iterable

from firstlight.core.events import (
    Event,
    GapNoted,
    LogSeen,
    MotionChanged,
    PhaseBegan,
    PhaseEnded,
    ProcessGone,
    Progress,
    Started,
    TokenVerified,
    Verdict,
)
from firstlight.core.gap import Gap
from firstlight.core.log import Counter, LogLine, PhaseSpan
from firstlight.core.process import Exit
from firstlight.core.report import FirstToken, Report
from firstlight.core.vocabulary import GapReason, Motion, Outcome, Phase
from firstlight.core.words import date_and_time

TAIL_LINES = 20

_NO_END = Gap(
    what="the end of the run",
    reason=GapReason.VANISHED,
    detail="firstlight was killed, or is still watching; this report is made from its journal",
)


def rebuild(events: Iterable[Event | Gap]) -> Report | None:
    """The verdict if it is the last event, else what can be told from the events; None if the run never started."""
    story = _Story()
    for event in events:
        story.see(event)
    return story.report()


class _Story:
    """What is known of the run, event by event."""

    def __init__(self) -> None:
        self._started: Started | None = None
        self._verdict: Report | None = None
        self._token: FirstToken | None = None
        self._motion: MotionChanged | None = None
        self._counter: Counter | None = None
        self._open: dict[tuple[Phase, str], PhaseSpan] = {}
        self._spans: list[PhaseSpan] = []
        self._exits: list[Exit] = []
        self._gaps: list[Gap] = []
        self._error: LogLine | None = None
        self._tail: deque[LogLine] = deque(maxlen=TAIL_LINES)
        self._phase = Phase.SPAWN
        self._at = 0.0

    def see(self, event: Event | Gap) -> None:
        if isinstance(event, Gap):
            self._gaps.append(event)
            return
        self._at = event.at
        self._verdict = None
        match event:
            case Started():
                self._started = event
            case Verdict():
                self._verdict = event.report
            case TokenVerified():
                self._token = event.token
            case MotionChanged():
                self._motion = event
            case Progress():
                self._counter = event.counter
            case PhaseBegan() | PhaseEnded():
                self._move(event)
            case ProcessGone():
                self._exits.append(event.exit)
            case GapNoted():
                self._gaps.append(event.gap)
            case LogSeen():
                self._hear(event)

    def report(self) -> Report | None:
        if self._verdict is not None or self._started is None:
            return self._verdict
        started = self._started
        outcome = self._outcome()
        return Report(
            run=started.run,
            outcome=outcome,
            headline=self._headline(outcome),
            engine=started.engine,
            engine_version="",
            command=started.command,
            started=started.at,
            ended=self._at,
            phase=self._phase,
            url=started.url,
            quiet_since=self._quiet_since(),
            counter=self._counter,
            first_token=self._token,
            timeline=(*self._spans, *self._open.values()),
            exits=tuple(self._exits),
            gaps=(*self._gaps, _NO_END),
            first_error=self._error,
            log_tail=tuple(self._tail),
        )

    def _move(self, event: PhaseBegan | PhaseEnded) -> None:
        key = (event.phase, event.source)
        if isinstance(event, PhaseBegan):
            self._phase = event.phase
            self._open[key] = PhaseSpan(phase=event.phase, source=event.source, began=event.at, rank=event.rank)
        elif (span := self._open.pop(key, None)) is not None:
            self._spans.append(
                PhaseSpan(phase=span.phase, source=span.source, began=span.began, ended=event.at, rank=span.rank)
            )

    def _hear(self, event: LogSeen) -> None:
        line = LogLine(
            stream=event.stream,
            at=event.at,
            text=event.text,
            message=event.text,
            source=event.source,
            level=event.level,
        )
        self._tail.append(line)
        if event.first_error or (self._error is None and event.level in {"ERROR", "CRITICAL", "FATAL"}):
            self._error = line

    def _stalled(self) -> bool:
        return self._motion is not None and self._motion.motion == Motion.STALLED

    def _outcome(self) -> Outcome:
        if self._stalled():
            return Outcome.STALLED
        return Outcome.SERVING if self._token is not None else Outcome.NOT_LOOKED

    def _headline(self, outcome: Outcome) -> str:
        last = f"the last that is known is of {date_and_time(self._at)}"
        if self._stalled() and self._motion is not None:
            return f"stalled in {self._motion.phase}: {self._motion.why}; {last}"
        if outcome == Outcome.SERVING:
            return f"the first token was verified; {last}"
        return f"no verdict was reached; {last}, in {self._phase}"

    def _quiet_since(self) -> float | None:
        if self._motion is None or not self._stalled():
            return None
        return self._motion.at - self._motion.quiet_s
