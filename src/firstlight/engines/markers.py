"""Phase marks: an engine's table, compiled once, matched cheaply.

Every line of a log passes through here, so plain text is looked for first (tens of nanoseconds), and a regular
expression is tried only where that was found.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.core.log import LogLine, PhaseMark
from firstlight.core.vocabulary import Phase
from firstlight.engines.table import LOOKED_AT, Mark, in_range

_PHASES = {phase.value: phase for phase in Phase}


class _Compiled(NamedTuple):
    has: str
    pattern: re.Pattern[str] | None
    mark: Mark


class Markers:
    """The marks of one engine, all versions."""

    def __init__(self, marks: tuple[Mark, ...]) -> None:
        self._marks = tuple(
            _Compiled(mark.has, re.compile(mark.pattern) if mark.pattern else None, mark) for mark in marks
        )

    def of(self, line: LogLine, version: str) -> tuple[PhaseMark, ...]:
        """What a line says of phases, ends first. An unknown version (empty) may be any."""
        beginning = line.message[:LOOKED_AT]
        hits = [compiled for compiled in self._marks if compiled.has in beginning]
        if not hits:
            return ()
        for compiled in hits:
            if in_range(version, compiled.mark.since, compiled.mark.until):
                match = compiled.pattern.search(beginning) if compiled.pattern else None
                if match or not compiled.pattern:
                    return tuple(_phase_marks(line, compiled.mark, match))
        return ()


def _phase_marks(line: LogLine, mark: Mark, match: re.Match[str] | None) -> Iterator[PhaseMark]:
    named = match.groupdict() if match else {}
    rank = int(named["rank"]) if named.get("rank") else line.rank
    if "phase" in named:
        phase = _PHASES.get(named["phase"])
        if phase:
            yield _phase_mark(line, phase, rank, ends=named.get("edge") == "end")
        return
    for phase in mark.ends:
        yield _phase_mark(line, phase, rank, ends=True)
    if mark.begins:
        yield _phase_mark(line, mark.begins, rank, ends=False)


def _phase_mark(line: LogLine, phase: Phase, rank: int, *, ends: bool) -> PhaseMark:
    return PhaseMark(
        phase=phase, at=line.at, source=line.source, pid=line.pid, rank=rank, ends=ends, text=line.message
    )
