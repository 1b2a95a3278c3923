"""Which phase every rank is in, how long each took, and how far the present one is.

Order is what was seen, not the order of the vocabulary: a phase may come again (a drafter's weights after the
key-value cache), and then it is a new span. Four rules keep a log that is read from two pipes, where neighbouring
lines may change places, from telling nonsense:

- a progress bar opens a phase that its source has not been through yet, and reopens none; a port opens once;
- what a drafter loads and builds belongs to `draft_init`;
- the log alone never says "serving": an engine that says so is waiting to be verified;
- once the server serves, the log moves no phase any more, however it is shut down.

Bars name no process; they are put down to the first rank, which is the one that prints them. A phase `spawn` ends
when what was spawned speaks.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from firstlight.core.log import Counter, LogLine, PhaseMark, PhaseSpan, RawLine
from firstlight.core.vocabulary import Phase
from firstlight.engines import EngineProfile, profile, revealed
from firstlight.supervise.log.pace import Pace

SOURCES_MAX = 1024
"""A hostile log may name a new process in every line; beyond this many they share one."""

SPANS_MAX = 2000
"""Spans that are kept; a log that repeats its phases for ever opens no more."""

_DRAFTER_WORK = frozenset({Phase.MODEL_INIT, Phase.WEIGHTS})
_DIGITS = re.compile(r"\d+")
_COPY = re.compile(r"DP\d+")


class PhaseChange(NamedTuple):
    """A phase of one source began or, if not `began`, ended after `seconds`. `text` is the line that said so."""

    phase: Phase
    source: str
    rank: int
    began: bool
    at: float
    seconds: float
    text: str


@dataclass(slots=True)
class _Span:
    phase: Phase
    began: float
    order: int
    ended: float | None = None
    past: bool = False


@dataclass(slots=True)
class _Source:
    """One process as the log knows it."""

    name: str
    rank: int
    spans: list[_Span] = field(default_factory=list)
    spoken: int = 0

    @property
    def last(self) -> _Span | None:
        return self.spans[-1] if self.spans else None

    @property
    def open(self) -> _Span | None:
        return self.spans[-1] if self.spans and self.spans[-1].ended is None else None

    def been_through(self, phase: Phase) -> bool:
        return any(span.phase is phase for span in self.spans)


class PhaseTracker:
    """Follows the phases of one server from the lines of its log and from facts that the watcher knows."""

    def __init__(self, profile: EngineProfile, started: float) -> None:
        """`started` is the launch, on the clock that the lines' `at` is read from."""
        self.profile = profile
        self.version = ""
        self.pace = Pace()
        self._launch = _Source("", -1)
        self._facts = _Source("", -1)
        self._sources: dict[int | str, _Source] = {}
        self._order = 0
        self._spans = 0
        self._began(self._launch, Phase.SPAWN, started)

    # What is known now

    @property
    def phase(self) -> Phase:
        """The phase of the server as a whole: that of the least advanced rank which is still starting.

        A rank lags if its peers have announced more phases than it has, and nobody who waits for all ranks has spoken
        since. Without such a rank it is the phase that began last; one that has ended gives way to a rank's open one.
        """
        newest = max(self._lagging() or self._all(), key=_order)
        if newest.rank < 0 and newest.open is None:
            working = [source for source in self._sources.values() if source.rank >= 0 and source.open]
            newest = max(working, key=_order, default=newest)
        return newest.last.phase if newest.last else Phase.SPAWN

    def phase_of(self, source: str, pid: int = 0) -> Phase | None:
        """The phase of one process, by its pid or else by the engine's word for it; None if the log does not tell.

        Where the log names no process at all (SGLang on one GPU), all speak as one.
        """
        known = self._sources.get(pid)
        if known is None and source:
            named = (each for each in self._sources.values() if each.name == source)
            known = next(named, None) or (None if self._first_rank() else self._sources.get(""))
        return known.last.phase if known and known.last else None

    @property
    def timeline(self) -> tuple[PhaseSpan, ...]:
        """Every span, in the order in which they began."""
        found = [(span, source) for source in self._all() for span in source.spans]
        return tuple(
            PhaseSpan(phase=span.phase, source=source.name, began=span.began, ended=span.ended, rank=source.rank)
            for span, source in sorted(found, key=lambda pair: pair[0].order)
            if not (span.past and span.ended is not None)
        )

    @property
    def counter(self) -> Counter | None:
        """The progress of the present phase, None if it shows none."""
        return self.pace.counter

    def eta_s(self, now: float) -> float | None:
        """Seconds until the counter is full; None while there is no rate, or none that can be believed."""
        return self.pace.eta_s(now)

    # What happens

    def see(self, line: LogLine) -> list[PhaseChange]:
        """Take in one line of the log; the changes say what it moved.

        A server of unknown kind is looked at more closely: once a line gives its engine away, `profile` is that
        engine's, and later lines should be read with it.
        """
        if self.profile.name == "generic" and (name := revealed(line.text)):
            self.profile = profile(name)
            line = self.profile.read_line(
                RawLine(stream=line.stream, at=line.at, text=line.text, transient=line.transient)
            )
        if not self.version:
            self.version = self.profile.version(line)
        if self._facts.been_through(Phase.SERVING):
            return []
        counter = self.profile.counter(line)
        changes = list(self._see_marks(line, is_bar=counter is not None))
        if counter is not None:
            self.pace.see(counter, line.at)
        return changes

    def enter(self, phase: Phase, at: float, source: str = "") -> list[PhaseChange]:
        """Take in a fact: the port is open, a token is being asked for, the first token has come.

        A port opens once; for an engine that listens from its first second that says nothing. `VERIFY` and `SERVING`
        end whatever was still open: the server answers.
        """
        if phase is Phase.HTTP_BIND and (self.profile.listens_early or self._seen(phase)):
            return []
        if self._facts.open and self._facts.open.phase is phase:
            return []
        self._facts.name = source
        ended = self._all() if phase in {Phase.VERIFY, Phase.SERVING} else [self._launch, self._facts]
        changes = [change for each in ended for change in self._close(each, at, "")]
        return [*changes, *self._began(self._facts, phase, at)]

    def forget_times(self, now: float) -> None:
        """All that was seen so far came from an old log: it tells where everybody stands, but not since when."""
        for source in self._all():
            for span in source.spans:
                span.past = True
                span.began = now

    def _see_marks(self, line: LogLine, *, is_bar: bool) -> Iterator[PhaseChange]:
        marks = self.profile.marks(line, self.version)
        if not marks:
            if self._order == 1 and self.profile.first_line and line.text:
                yield from self._begin(self._launch, self.profile.first_line, line.at, line.message)
            return
        for mark in marks:
            source = self._source_of(mark, is_bar=is_bar)
            if mark.ends:
                yield from self._end(source, mark)
            elif self._opens(source, mark.phase, is_bar=is_bar):
                yield from self._end_spawning(mark)
                phase = Phase.VERIFY if mark.phase is Phase.SERVING else mark.phase
                yield from self._begin(source, phase, mark.at, mark.text)

    def _opens(self, source: _Source, phase: Phase, *, is_bar: bool) -> bool:
        current = source.open
        if current and (current.phase is phase or (current.phase is Phase.DRAFT_INIT and phase in _DRAFTER_WORK)):
            return False
        again = (is_bar and source.been_through(phase)) or (phase is Phase.HTTP_BIND and self._seen(phase))
        return not again and self._spans < SPANS_MAX

    def _begin(self, source: _Source, phase: Phase, at: float, text: str) -> Iterator[PhaseChange]:
        yield from self._close(source, at, text)
        yield from self._began(source, phase, at, text)

    def _began(self, source: _Source, phase: Phase, at: float, text: str = "") -> list[PhaseChange]:
        self._order += 1
        self._spans += 1
        source.spans.append(_Span(phase, at, self._order))
        source.spoken += phase in self.profile.spoken
        self.pace = Pace()
        return [PhaseChange(phase, source.name, source.rank, began=True, at=at, seconds=0.0, text=text)]

    def _end_spawning(self, mark: PhaseMark) -> Iterator[PhaseChange]:
        yield from self._close(self._launch, mark.at, mark.text)
        for source in self._sources.values():
            if source.open and source.open.phase is Phase.SPAWN:
                yield from self._close(source, mark.at, mark.text)

    def _end(self, source: _Source, mark: PhaseMark) -> Iterator[PhaseChange]:
        """End a phase of a source; without a rank of its own it speaks for every rank of its data-parallel copy."""
        for each in [source] if source.rank >= 0 else [source, *self._sources.values()]:
            if each.open and each.open.phase is mark.phase and _copy(source) in {"", _copy(each)}:
                yield from self._close(each, mark.at, mark.text)

    def _close(self, source: _Source, at: float, text: str) -> Iterator[PhaseChange]:
        span = source.open
        if span:
            span.ended = max(at, span.began)
            seconds = span.ended - span.began
            if span.past:
                return
            yield PhaseChange(span.phase, source.name, source.rank, began=False, at=at, seconds=seconds, text=text)

    # Who speaks

    def _source_of(self, mark: PhaseMark, *, is_bar: bool) -> _Source:
        if not mark.source and not mark.pid:
            return (self._first_rank() if is_bar else None) or self._known("", "", -1)
        name = mark.source or f"pid {mark.pid}"
        key: int | str = mark.pid or name
        source = self._known(key, name, mark.rank)
        if mark.source and source.name != name:
            # multiprocessing's own name gives way to the title the process takes ("VllmWorker-0" to "Worker_TP0").
            source.name, source.rank = name, mark.rank
        return source

    def _known(self, key: int | str, name: str, rank: int) -> _Source:
        source = self._sources.get(key)
        if source is None:
            if len(self._sources) >= SOURCES_MAX:
                key, name, rank = "", "", -1
            source = self._sources.setdefault(key, _Source(name, rank))
        return source

    def _first_rank(self) -> _Source | None:
        ranks = [source for source in self._sources.values() if source.rank >= 0]
        return min(ranks, key=lambda source: source.rank, default=None)

    def _all(self) -> list[_Source]:
        return [self._launch, *self._sources.values(), self._facts]

    def _seen(self, phase: Phase) -> bool:
        return any(source.been_through(phase) for source in self._all())

    def _lagging(self) -> list[_Source]:
        """Of each group of peers (names that differ only in digits) the slowest, if it has announced fewer phases."""
        groups: dict[str, list[_Source]] = {}
        for source in self._sources.values():
            groups.setdefault(_DIGITS.sub("#", source.name), []).append(source)
        alone = [group[0] for group in groups.values() if len(group) == 1]
        passed_on = max((_order(source) for source in [*alone, self._facts]), default=0)
        slowest = [
            min(group, key=lambda source: (source.spoken, -_order(source)))
            for group in groups.values()
            if len({source.spoken for source in group}) > 1
        ]
        return [source for source in slowest if _order(source) > passed_on]


def _copy(source: _Source) -> str:
    """The data-parallel copy that a name tells ("DP1"), empty if it tells none."""
    found = _COPY.search(source.name)
    return found.group() if found else ""


def _order(source: _Source) -> int:
    return source.last.order if source.last else 0
