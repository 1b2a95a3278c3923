"""The report as Markdown, ready to paste into a GitHub issue.

What comes from the server (names, stacks, log lines) stands in code, where Markdown and GitHub do not touch it; words
of ours that may quote it are escaped, so that nobody is mentioned and nothing is rendered by accident.
"""

import re

from firstlight.core.report import Finding, Report
from firstlight.core.words import gap_words, printable, seconds
from firstlight.report import sections

BAR_COLUMNS = 30

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~])")
_REFERENCE = re.compile(r"([@#])(?=\w)")


def markdown(report: Report) -> str:
    """The report as GitHub-flavoured Markdown."""
    blocks = [
        f"### {sections.outcome(report).capitalize()}: {_words(report.headline)}",
        _named(sections.facts(report)),
        _section("First token", _named(sections.token_facts(report))),
        _section("Findings", "\n".join(_finding(finding) for finding in report.findings)),
        _section("What to do next", _bullets([_words(step) for step in report.next_steps])),
        _section("First error", _fence([sections.log_line(report.first_error)] if report.first_error else [])),
        _section(sections.PROCESSES_TITLE, _processes(report)),
        _section("Ended", _bullets([_code(line) for line in sections.ended(report)])),
        _section("Phases", _phases(report)),
        _folded("Last lines of the log", _fence(sections.log_tail(report))),
        _section("What could not be seen", _bullets([_words(gap_words(gap)) for gap in report.gaps])),
        _section("Files", _named(sections.files(report))),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _section(title: str, body: str) -> str:
    return f"#### {title}\n\n{body}" if body else ""


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""


def _bullets(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _named(rows: list[tuple[str, str]]) -> str:
    return _bullets([f"**{name}**: {_code(words)}" for name, words in rows])


def _phases(report: Report) -> str:
    lines = []
    for bar in sections.bars(report):
        before = min(BAR_COLUMNS - 1, int(bar.offset * BAR_COLUMNS))
        filled = "█" * max(1, min(BAR_COLUMNS - before, round(bar.share * BAR_COLUMNS)))
        unfinished = "  did not end" if bar.stuck else ""
        lines.append(f"{bar.phase:<14}{seconds(bar.seconds):>12}  {' ' * before}{filled}{unfinished}")
    return _fence(lines)


def _processes(report: Report) -> str:
    return "\n".join(_group(report, group) for group in sections.groups(report))


def _group(report: Report, group: sections.Group) -> str:
    lines = []
    for process in group.processes:
        facts = _words(sections.process_facts(report, process))
        lines.append(f"- **{_words(sections.process_title(process))}** {facts}")
        if process.last_words:
            lines.append(f"  last words: {_code(process.last_words)}")
    if group.doing:
        lines.append(f"  - {_words(group.doing)}")
    if group.where:
        frames = _fence([sections.frame_words(frame) for frame in group.where])
        lines.append("\n" + "\n".join(f"    {line}" for line in frames.splitlines()) + "\n")
    return "\n".join(lines)


def _finding(finding: Finding) -> str:
    verdict, title = sections.finding_words(finding)
    lines = [f"- **{_words(verdict)}**: {_words(title)}"]
    lines += [f"  - seen: {_code(quote)}" for quote in finding.evidence]
    lines += [f"  - try: {_words(advice)}" for advice in finding.advice]
    return "\n".join(lines)


def _words(text: str) -> str:
    """Prose of ours, with whatever it quotes made harmless."""
    escaped = _SPECIAL.sub(r"\\\1", printable(text, 4000).replace("&", "&amp;"))
    return _REFERENCE.sub(r"\1&#8203;", escaped)


def _code(text: str) -> str:
    """Text in a code span, whatever backticks it holds."""
    plain = printable(text, 4000)
    ticks = "`" * (_longest_run(plain) + 1)
    space = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{ticks}{space}{plain}{space}{ticks}"


def _fence(lines: list[str]) -> str:
    """Lines in a code block, whatever backticks they hold."""
    if not lines:
        return ""
    ticks = "`" * max(3, _longest_run("\n".join(lines)) + 1)
    return "\n".join([f"{ticks}text", *lines, ticks])


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
