"""What a report says, in words and shares, before it is laid out: the same for terminal, Markdown and HTML."""

import re
import shlex
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import msgspec

from firstlight.core.gap import Gap
from firstlight.core.hosts import PIDS_A_NODE, local
from firstlight.core.log import Counter, LogLine
from firstlight.core.look import Frame
from firstlight.core.process import Exit
from firstlight.core.report import Finding, Report, ReportedProcess, ReportedThread
from firstlight.core.vocabulary import Certainty, GapReason, Outcome, Phase, Role
from firstlight.core.words import (
    OUTCOME_WORDS,
    counted,
    date_and_time,
    exit_words,
    gap_words,
    printable,
    seconds,
    size,
    time_of_day,
    who,
)
from firstlight.report.picture.drawing import spans

ENDED_MAX = 10
"""Processes that ended and are named; a compile has hundreds of helpers."""

LINES_MAX = 200
"""Of anything that could be listed without end."""

WORDS_MAX = 400
"""Of a command."""

PROCESSES_MAX = 512
THREADS_MAX = 8
GROUP_MAX = 8
"""Processes of one group that are told one by one."""

FINDING_LINES_MAX = 40
"""Of each kind, under one finding."""

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


class Group(NamedTuple):
    """Processes that do the same at the same place: eight ranks read as one paragraph."""

    processes: tuple[ReportedProcess, ...]
    doing: str
    where: tuple[Frame, ...]

    @property
    def threads(self) -> tuple[ReportedThread, ...]:
        """Further threads that tell something; they do the same in all of these processes."""
        return self.processes[0].others[:THREADS_MAX]


def outcome(report: Report) -> str:
    """The verdict in a word or two."""
    return OUTCOME_WORDS[report.outcome]


def facts(report: Report) -> list[tuple[str, str]]:
    """The frame of the report: which server, how started, when, how far."""
    begun = report.outcome != Outcome.NOT_STARTED
    rows = [
        ("engine", f"{report.engine} {report.engine_version}".rstrip()),
        ("command", " ".join(_shell_word(printable(word, 400)) for word in report.command[:WORDS_MAX])),
        ("url", report.url),
        ("run" if report.run else "looked at", _when(report)),
        ("phase", _phase(report) if begun else ""),
    ]
    if report.quiet_since is not None:
        quiet = seconds(report.ended - report.quiet_since)
        rows.append(("quiet", f"since {time_of_day(report.quiet_since)}, {quiet} before this report"))
    return [(name, printable(words, 4000)) for name, words in rows if words]


def _shell_word(word: str) -> str:
    """A word as a shell would need it; the stars of a hidden secret stay bare."""
    return shlex.quote(word) if not word or re.search(r"[\s'\"`$&|;<>()\\#]", word) else word


def _phase(report: Report) -> str:
    return f"{report.phase}, {counter_words(report.counter)}" if report.counter else str(report.phase)


def _when(report: Report) -> str:
    """The run by name, and when it was; of a look alone the moment, and for how long the server had been there."""
    ran = seconds(report.ended - report.started)
    if report.run:
        return f"{report.run}, from {date_and_time(report.started)}, {ran}"
    return f"{date_and_time(report.ended)}, {ran} after its start"


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


def groups(report: Report) -> list[Group]:
    """Processes by what they do and where they stand, in the order of the report."""
    found: dict[Hashable, list[ReportedProcess]] = {}
    for process in report.processes[:PROCESSES_MAX]:
        threads = tuple((one.name, one.doing, one.where) for one in process.others)
        found.setdefault((process.doing, process.where, threads), []).append(process)
    return [Group(tuple(members), members[0].doing, members[0].where) for members in found.values()]


def thread_words(group: Group, thread: ReportedThread) -> str:
    """A further thread and what it does; of processes that do the same, without a number that is one's alone."""
    number = f" {thread.tid % PIDS_A_NODE}" if len(group.processes) == 1 else ""
    name = f" ({printable(thread.name, 40)})" if thread.name else ""
    return printable(f"thread{number}{name} {thread.doing}")


def told(group: Group) -> tuple[tuple[ReportedProcess, ...], str]:
    """The members of a group that are told one by one, and a word about the others."""
    if len(group.processes) <= GROUP_MAX:
        return group.processes, ""
    shown, rest = group.processes[: GROUP_MAX // 2], group.processes[GROUP_MAX // 2 :]
    ranks = [process.rank for process in rest if process.rank >= 0]
    named = f" (ranks {spans(ranks)})" if len(ranks) == len(rest) else ""
    return shown, f"and {len(rest)} more that do the same{named}"


def process_title(report: Report, process: ReportedProcess) -> str:
    """Who it is."""
    return who(process.name, process.label, local(process.pid, report.hosts), process.rank)


def process_facts(report: Report, process: ReportedProcess) -> str:
    """What its counters said when it was last seen; of one that ended since, only who it was."""
    if process.state in GONE_STATES or any(gone.id.pid == process.pid for gone in report.exits):
        parts = [process.role, _phase_of(report, process), "ended"]
    else:
        state = STATE_WORDS.get(process.state, printable(process.state, 20))
        load = f"CPU {process.cpu_percent:.0f} %"
        parts = [process.role, _phase_of(report, process), state, load, size(process.memory_bytes)]
    return ", ".join(part for part in parts if part)


def _phase_of(report: Report, process: ReportedProcess) -> str:
    """The phase that a process was last seen to enter; once a server serves, all that do its work are there."""
    minor = process.role in {Role.HELPER, Role.COMPILER}
    return Phase.SERVING if report.phase is Phase.SERVING and not minor else process.phase or ""


def finding_words(finding: Finding) -> tuple[str, str]:
    """The verdict's word, and what was found."""
    return printable(finding.verdict, 40), printable(finding.title)


def finding_lines(finding: Finding) -> list[tuple[str, str]]:
    """What a finding rests on, and what to do: a word for the kind of line, and the line."""
    kinds = (
        ("seen", finding.evidence),
        ("against", finding.against),
        ("unseen", finding.unseen),
        ("try", finding.advice),
        ("mind", finding.traps),
    )
    return [(kind, line) for kind, lines in kinds for line in first_of(lines, FINDING_LINES_MAX)]


def first_of(lines: Sequence[str], most: int = LINES_MAX) -> list[str]:
    """Lines that may be shown, not endlessly many; how many are left out is said."""
    shown = [printable(line) for line in lines[:most]]
    return [*shown, f"… and {len(lines) - most} more"] if len(lines) > most else shown


def weighed(report: Report, *, briefly: bool = False) -> list[tuple[str, str]]:
    """The other causes that were weighed, by the word for them: what was ruled out first. `briefly`, those of which
    nothing was seen are only counted.
    """
    by_word: dict[str, list[str]] = {word: [] for word in _WEIGHED_ORDER}
    for cause, word in report.weighed[:LINES_MAX]:
        by_word.setdefault(printable(word, 40), []).append(printable(cause, 200))
    if briefly and (unseen := by_word[Certainty.NOT_SEEN]):
        by_word[Certainty.NOT_SEEN] = [counted(len(unseen), "more", "more")]
    return [(word, ", ".join(causes)) for word, causes in by_word.items() if causes]


_WEIGHED_ORDER = (Certainty.EXCLUDED, Certainty.NOT_EXAMINED, Certainty.NOT_SEEN)


def gaps(report: Report) -> list[str]:
    """What could not be seen, each with its way out; gaps that differ in the process alone are one line."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for gap in report.gaps:
        alike.setdefault((gap.what, gap.reason, gap.detail), []).append(gap.pid)
    return first_of(
        [
            _gap_line(Gap(what=w, reason=GapReason(r), detail=d), pids, report.hosts)
            for (w, r, d), pids in alike.items()
        ]
    )


def _gap_line(gap: Gap, pids: list[int], hosts: tuple[str, ...]) -> str:
    numbers = [local(pid, hosts) for pid in dict.fromkeys(pids) if pid]
    if len(numbers) < 2:
        whose = "".join(f" of process {one}" for one in numbers)
        return gap_words(msgspec.structs.replace(gap, what=f"{gap.what}{whose}"))
    shown = ", ".join(numbers[:8]) + (" …" if len(numbers) > 8 else "")
    words = gap_words(msgspec.structs.replace(gap, what=f"{gap.what} of {len(numbers)} processes", detail=""))
    return f"{words}{f' ({printable(gap.detail)})' if gap.detail else ''}, pids {shown}"


def environment(report: Report) -> list[tuple[str, str]]:
    """Telling facts about machine and server; several of one name are one row."""
    rows: dict[str, list[str]] = {}
    for name, value in report.environment[:LINES_MAX]:
        shown = _path(value) if name.endswith("PATH") else value
        rows.setdefault(printable(name, 60), []).append(printable(shown, 400))
    return [(name, "; ".join(values)) for name, values in rows.items()]


PATH_CHARACTERS = 72


def _path(value: str) -> str:
    """A list of folders cut to one line; those that are searched first tell most."""
    if len(value) <= PATH_CHARACTERS:
        return value
    kept = value[:PATH_CHARACTERS].rpartition(":")[0] or value[:PATH_CHARACTERS]
    return f"{kept}: … of {counted(value.count(':') + 1, 'folder')}"


def signature(report: Report) -> list[tuple[str, str]]:
    """What makes this stall the same as another."""
    found = report.signature
    if found is None:
        return []
    waits = [("waits", line) for line in first_of(found.waits, 20)]
    return [("digest", printable(found.digest, 80)), ("phase", printable(found.phase, 40)), *waits]


def files(report: Report) -> list[tuple[str, str]]:
    """Where there is more to read."""
    return [("evidence", printable(report.bundle))] if report.bundle else []


def frame_words(frame: Frame) -> str:
    """One frame of a stack."""
    return f"{printable(frame.function, 120)} ({printable(frame.file, 200)}:{frame.line})"


def ended(report: Report) -> list[str]:
    """The processes that ended: those that were killed or failed first, then ranks and the server's first process.

    Within each kind the first to end stands first. Beyond `ENDED_MAX` they are counted. What a shell or a compiler
    starts is left out where nobody saw how it ended and nothing else in the report is about it.
    """
    named = {report.server, *(pid for one in report.findings for pid in one.pids)}
    ends = {end for edge in report.graph.edges for end in (edge.source, edge.target)}
    named |= {node.pid for node in report.graph.nodes if node.id in ends}
    told = [gone for gone in report.exits if not gone.passing or gone.id.pid in named]
    ordered = sorted(told, key=lambda gone: (_insignificance(gone, report.server), gone.at))
    shown, left = ordered[:ENDED_MAX], ordered[ENDED_MAX:]
    lines = [_exit_line(gone, report.hosts) for gone in shown]
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


def _exit_line(gone: Exit, hosts: tuple[str, ...]) -> str:
    named = who(gone.name, gone.label, local(gone.id.pid, hosts), gone.rank)
    return f"{time_of_day(gone.at)}  {named} {exit_words(gone)}"


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
