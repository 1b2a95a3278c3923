"""What a report says, in words and shares, before it is laid out: the same for terminal, Markdown and HTML."""

import re
from typing import NamedTuple

from firstlight.core.log import Counter, LogLine
from firstlight.core.look import Frame
from firstlight.core.process import Exit
from firstlight.core.report import Finding, Report, ReportedProcess
from firstlight.core.timeline import merged
from firstlight.core.vocabulary import Outcome, Phase, Role
from firstlight.core.words import (
    OUTCOME_WORDS,
    date_and_time,
    exit_words,
    printable,
    seconds,
    size,
    time_of_day,
    who,
)

ENDED_MAX = 10
"""Processes that ended and are named; a compile has hundreds of helpers."""

PROCESSES_TITLE = "Processes, as last seen"

STATE_WORDS = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a device or disk",
    "T": "stopped by a signal",
    "t": "stopped by a tracer",
    "Z": "ended, not yet reaped",
    "X": "ended",
    "I": "idle",
}


GONE_STATES = frozenset("ZX")


class Bar(NamedTuple):
    """A phase on the timeline; `offset` and `share` are fractions of the whole. `stuck` if it should have ended."""

    phase: str
    seconds: float
    offset: float
    share: float
    stuck: bool


class Group(NamedTuple):
    """Processes that do the same at the same place: eight ranks read as one paragraph."""

    processes: tuple[ReportedProcess, ...]
    doing: str
    where: tuple[Frame, ...]


def outcome(report: Report) -> str:
    """The verdict in a word or two."""
    return OUTCOME_WORDS[report.outcome]


def facts(report: Report) -> list[tuple[str, str]]:
    """The frame of the report: which server, how started, when, how far."""
    begun = report.outcome != Outcome.NOT_STARTED
    rows = [
        ("engine", f"{report.engine} {report.engine_version}".rstrip()),
        ("command", " ".join(printable(word, 400) for word in report.command)),
        ("url", report.url),
        ("run", f"{report.run}, from {date_and_time(report.started)}, {seconds(report.ended - report.started)}"),
        ("phase", _phase(report) if begun else ""),
    ]
    if report.quiet_since is not None:
        quiet = seconds(report.ended - report.quiet_since)
        rows.append(("quiet", f"since {time_of_day(report.quiet_since)}, {quiet} before this report"))
    return [(name, printable(words, 4000)) for name, words in rows if words]


def _phase(report: Report) -> str:
    return f"{report.phase}, {counter_words(report.counter)}" if report.counter else str(report.phase)


def token_facts(report: Report) -> list[tuple[str, str]]:
    """Proof of first light: what was asked, what came back, how soon; and a little more of the same, to read."""
    token = report.first_token
    if token is None:
        return []
    facts = [
        ("asked", printable(token.prompt)),
        ("answered", printable(token.text)),
        ("by", printable(token.model)),
        ("took", f"{seconds(token.request_s)}, {_since(token.after_launch_s, attached=report.attached)}"),
    ]
    return [*facts, ("goes on", printable(report.completion))] if report.completion else facts


def _since(after_s: float, *, attached: bool) -> str:
    return f"{seconds(after_s)} after {'the watching began' if attached else 'the launch'}"


def bars(report: Report) -> list[Bar]:
    """The phases of the server as a whole, placed on one timeline."""
    spans = merged(report.timeline)
    if not spans:
        return []
    began = min(report.started, spans[0].began)
    whole = max(0.001, report.ended - began, *(span.ended - began for span in spans if span.ended is not None))
    placed = []
    for span in spans:
        ended = max(span.began, report.ended if span.ended is None else span.ended)
        share = (ended - span.began) / whole
        stuck = span.ended is None and span.phase != Phase.SERVING and report.outcome != Outcome.SERVING
        placed.append(Bar(span.phase, ended - span.began, (span.began - began) / whole, share, stuck))
    return placed


def groups(report: Report) -> list[Group]:
    """Processes by what they do and where they stand, in the order of the report."""
    found: dict[tuple[str, tuple[Frame, ...]], list[ReportedProcess]] = {}
    for process in report.processes:
        found.setdefault((process.doing, process.where), []).append(process)
    return [Group(tuple(members), doing, where) for (doing, where), members in found.items()]


def process_title(process: ReportedProcess) -> str:
    """Who it is."""
    return who(process.name, process.label, process.pid, process.rank)


def process_facts(report: Report, process: ReportedProcess) -> str:
    """What its counters said when it was last seen; of one that ended since, only who it was."""
    if process.state in GONE_STATES or any(gone.id.pid == process.pid for gone in report.exits):
        parts = [process.role, process.phase or "", "ended"]
    else:
        state = STATE_WORDS.get(process.state, process.state)
        load = f"CPU {process.cpu_percent:.0f} %"
        parts = [process.role, process.phase or "", state, load, size(process.memory_bytes)]
    return ", ".join(part for part in parts if part)


def finding_words(finding: Finding) -> tuple[str, str]:
    """The verdict's word, and what was found."""
    return printable(finding.verdict, 40), printable(finding.title)


def files(report: Report) -> list[tuple[str, str]]:
    """Where there is more to read."""
    return [("evidence", printable(report.bundle))] if report.bundle else []


def frame_words(frame: Frame) -> str:
    """One frame of a stack."""
    return f"{printable(frame.function, 120)} ({printable(frame.file, 200)}:{frame.line})"


def ended(report: Report) -> list[str]:
    """The processes that ended: those that were killed or failed first, then ranks and the server's first process.

    Within each kind the first to end stands first. Beyond `ENDED_MAX` they are counted.
    """
    ordered = sorted(report.exits, key=lambda gone: (_insignificance(gone, report.server), gone.at))
    shown, left = ordered[:ENDED_MAX], ordered[ENDED_MAX:]
    lines = [_exit_line(gone) for gone in shown]
    if left:
        usual = all(_insignificance(gone, report.server) == _SHORT_LIVED for gone in left)
        lines.append(f"and {len(left)} more{' that ended as short-lived helpers do' if usual else ''}")
    return lines


_SHORT_LIVED = 3


def _insignificance(gone: Exit, root: int) -> int:
    """0 for a process that was killed or failed, `_SHORT_LIVED` for a helper that did its work and left."""
    if gone.signal is not None or (isinstance(gone.code, int) and gone.code != 0):
        return 0
    if gone.rank >= 0 or gone.id.pid == root or gone.role in {Role.FRONT, Role.ENGINE, Role.WORKER}:
        return 1
    return _SHORT_LIVED if gone.clean else 2


def _exit_line(gone: Exit) -> str:
    return f"{time_of_day(gone.at)}  {who(gone.name, gone.label, gone.id.pid, gone.rank)} {exit_words(gone)}"


def log_line(line: LogLine) -> str:
    """A line of the log as the server wrote it."""
    return printable(line.text)


_ACCESS = re.compile(r'"(?:GET|HEAD|POST|OPTIONS) \S+ HTTP/[\d.]+"\s+(?:[1-4]\d\d|503)\b')
"""A line of an access log: nearly all are answers to firstlight's own questions. Errors of the server stay."""


def log_tail(report: Report) -> list[str]:
    """The last lines of the log that tell something: without answered requests, and each line once, its last time.

    Nobody looks for the last words of what works: none where the server serves.
    """
    if report.outcome == Outcome.SERVING:
        return []
    telling = [line for line in report.log_tail if not _ACCESS.search(line.text)]
    last = {line.message: number for number, line in enumerate(telling)}
    return [log_line(line) for number, line in enumerate(telling) if last[line.message] == number]


def counter_words(counter: Counter) -> str:
    """How far a phase has come."""
    if counter.unit == "bytes":
        return f"{size(counter.done)} of {size(counter.total)}"
    return f"{counter.done:g} of {counter.total:g} {printable(counter.unit, 30)}".rstrip()
