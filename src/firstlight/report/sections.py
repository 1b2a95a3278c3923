"""What a report says, in words and shares, before it is laid out: the same for terminal, Markdown and HTML."""

from typing import NamedTuple

from firstlight.core.bundle import Frame
from firstlight.core.log import Counter, LogLine
from firstlight.core.process import Exit
from firstlight.core.report import Finding, Report, ReportedProcess
from firstlight.core.timeline import merged
from firstlight.core.vocabulary import Outcome, Phase
from firstlight.core.words import date_and_time, exit_words, printable, seconds, size, time_of_day, who

OUTCOME_WORDS = {
    Outcome.SERVING: "serving",
    Outcome.STALLED: "stalled",
    Outcome.EXITED: "exited",
    Outcome.DEADLINE: "deadline passed",
    Outcome.NOT_LOOKED: "not verified",
    Outcome.INTERRUPTED: "interrupted",
}

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


def facts(report: Report) -> list[tuple[str, str]]:
    """The frame of the report: which server, how started, when, how far."""
    rows = [
        ("engine", f"{report.engine} {report.engine_version}".rstrip()),
        ("command", " ".join(printable(word, 400) for word in report.command)),
        ("url", report.url),
        ("run", f"{report.run}, from {date_and_time(report.started)}, {seconds(report.ended - report.started)}"),
        ("phase", str(report.phase) + (f", {counter_words(report.counter)}" if report.counter else "")),
    ]
    if report.quiet_since is not None:
        quiet = seconds(report.ended - report.quiet_since)
        rows.append(("quiet", f"since {time_of_day(report.quiet_since)}, {quiet} before this report"))
    return [(name, printable(words, 4000)) for name, words in rows if words]


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


def process_facts(process: ReportedProcess) -> str:
    """What its counters say."""
    state = STATE_WORDS.get(process.state, process.state)
    parts = [process.role, process.phase or "", state, f"CPU {process.cpu_percent:.0f} %", size(process.memory_bytes)]
    return ", ".join(part for part in parts if part)


def finding_words(finding: Finding) -> tuple[str, str]:
    """The verdict's word, and what was found in whom."""
    unnamed = [str(pid) for pid in finding.pids if str(pid) not in finding.title]
    pids = f" (pid {', '.join(unnamed)})" if unnamed else ""
    return printable(finding.verdict, 40), f"{printable(finding.title)}{pids}"


def files(report: Report) -> list[tuple[str, str]]:
    """Where there is more to read."""
    return [("evidence", printable(report.bundle))] if report.bundle else []


def frame_words(frame: Frame) -> str:
    """One frame of a stack."""
    return f"{printable(frame.function, 120)} ({printable(frame.file, 200)}:{frame.line})"


def exit_line(exit_: Exit) -> str:
    """One process that ended."""
    return f"{time_of_day(exit_.at)}  {who(exit_.name, exit_.label, exit_.id.pid, exit_.rank)} {exit_words(exit_)}"


def log_line(line: LogLine) -> str:
    """A line of the log as the server wrote it."""
    return printable(line.text)


def counter_words(counter: Counter) -> str:
    """How far a phase has come."""
    if counter.unit == "bytes":
        return f"{size(counter.done)} of {size(counter.total)}"
    return f"{counter.done:g} of {counter.total:g} {printable(counter.unit, 30)}".rstrip()
