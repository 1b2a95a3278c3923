"""What a report says, in words and shares, before it is laid out: the same for terminal, Markdown and HTML."""

import re
import shlex
from collections.abc import Sequence

import msgspec

from firstlight.core.gap import Gap
from firstlight.core.hosts import local
from firstlight.core.log import Counter, LogLine
from firstlight.core.report import Finding, Report
from firstlight.core.vocabulary import Certainty, GapReason, Outcome
from firstlight.core.words import (
    OUTCOME_WORDS,
    counted,
    date_and_time,
    gap_words,
    printable,
    seconds,
    size,
    time_of_day,
)

LINES_MAX = 200
"""Of anything that could be listed without end."""

WORDS_MAX = 400
"""Of a command."""

ALIKE_MAX = 16
"""Findings of one cause, each about other processes."""

FINDING_LINES_MAX = 40
"""Of each kind, under one finding."""


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


def finding_words(finding: Finding) -> tuple[str, str]:
    """The verdict's word, and what was found."""
    return printable(finding.verdict, 40), printable(finding.title)


def shown_findings(findings: Sequence[Finding]) -> tuple[list[Finding], str]:
    """The findings to show, and words for those that are left out. One cause may have been found for every process of
    hundreds: what to do about it is said once, and no more of them are shown than anybody reads.
    """
    said: set[tuple[str, str]] = set()
    counts: dict[str, int] = {}
    shown: list[Finding] = []
    for one in findings:
        counts[one.id] = counts.get(one.id, 0) + 1
        if counts[one.id] <= ALIKE_MAX and len(shown) < LINES_MAX:
            advice, traps = (
                tuple(words for words in told if (one.id, words) not in said) for told in (one.advice, one.traps)
            )
            said.update((one.id, words) for words in (*one.advice, *one.traps))
            shown.append(msgspec.structs.replace(one, advice=advice, traps=traps))
    left = len(findings) - len(shown)
    return shown, f"… and {left} more findings" if left else ""


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
