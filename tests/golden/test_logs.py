"""Real logs of real servers, and what is read from them, line by line, pinned in a file beside each.

A `.read` file is what a person checks when a marker table changes. To write it anew after looking at the difference:
FIRSTLIGHT_WRITE_GOLDEN=1 pytest tests/golden/test_logs.py
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.core.log import Counter, LogLine, RawLine
from firstlight.core.vocabulary import Phase
from firstlight.engines import EngineProfile, profile
from firstlight.supervise.log.phases import PhaseChange, PhaseTracker

LOGS = sorted((Path(__file__).parent / "logs").glob("*.log"))
_CLOCK = re.compile(r"\d\d-\d\d (\d\d):(\d\d):(\d\d)")


def raw_lines(path: Path) -> Iterator[RawLine]:
    """The lines of a log, at the seconds since its first time stamp that the log itself tells."""
    at, first = 0.0, None
    for text in re.split(r"\r\n|\n|\r", path.read_text(encoding="utf-8")):
        if clock := _CLOCK.search(text[:60]):
            hours, minutes, seconds = map(int, clock.groups())
            stamp = hours * 3600 + minutes * 60 + seconds
            first = stamp if first is None else first
            at = float(stamp - first)
        yield RawLine(stream="stderr", at=at, text=text)


def reading(path: Path) -> tuple[list[str], PhaseTracker]:
    """Everything that is read from a log, as text, and the tracker at its end."""
    engine = profile(path.name.partition("-")[0])
    tracker = PhaseTracker(engine, 0.0)
    said: list[str] = []
    errors, first_error, counter = engine.errors(), None, tracker.counter
    for raw in raw_lines(path):
        line = engine.read_line(raw)
        said += [shown(change) for change in tracker.see(line)]
        if tracker.counter not in {counter, None}:
            said.append(shown_counter(raw.at, tracker.counter))
        counter = tracker.counter
        if engine.ready(line):
            said.append(f"{raw.at:7.0f}  ready            {line.message}")
        error = errors.see(line)
        if error.named and (first_error is None or error.instead_of is first_error):
            first_error = line
    said += [f"phase at the end: {tracker.phase}", f"version: {tracker.version or 'not told'}"]
    named = first_error.message.strip()[:120] if first_error else "none"
    said += [f"first error: {named}", *speakers(path, engine)]
    return said, tracker


def shown(change: PhaseChange) -> str:
    what = "began" if change.began else f"ended after {change.seconds:.0f} s"
    who = f"{change.source or '-'} rank {change.rank}" if change.rank >= 0 else change.source or "-"
    return f"{change.at:7.0f}  {change.phase:<16} {who:<16} {what}"


def shown_counter(at: float, counter: Counter | None) -> str:
    assert counter is not None
    return f"{at:7.0f}  counter          {counter.done:g} of {counter.total:g} {counter.unit}"


def speakers(path: Path, engine: EngineProfile) -> list[str]:
    """Who speaks in the log, by which name, pid and rank."""
    lines: list[LogLine] = [engine.read_line(raw) for raw in raw_lines(path)]
    named = {(line.pid, line.source, line.rank) for line in lines if line.source}
    return [f"speaks: {source} pid {pid} rank {rank}" for pid, source, rank in sorted(named)]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_what_is_read_from_a_real_log(path: Path) -> None:
    read = "\n".join(reading(path)[0]) + "\n"
    pinned = path.with_suffix(".read")
    if os.environ.get("FIRSTLIGHT_WRITE_GOLDEN"):
        pinned.write_text(read, encoding="utf-8")
    assert read == pinned.read_text(encoding="utf-8")


def test_there_are_logs_to_read() -> None:
    assert len(LOGS) >= 5


@pytest.mark.parametrize("path", [path for path in LOGS if "healthy" in path.stem], ids=lambda path: path.stem)
def test_a_healthy_start_and_its_shutdown_show_no_error(path: Path) -> None:
    said, tracker = reading(path)
    assert "first error: none" in said
    assert tracker.phase is Phase.HTTP_BIND


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_same_log_taken_for_a_generic_one_reveals_its_engine(path: Path) -> None:
    """As behind a wrapper script, whose command line says nothing."""
    tracker = PhaseTracker(profile("generic"), 0.0)
    for raw in raw_lines(path):
        tracker.see(tracker.profile.read_line(raw))
    assert tracker.profile.name == path.name.partition("-")[0]
    assert [span.phase for span in tracker.timeline][-1] == reading(path)[1].timeline[-1].phase
