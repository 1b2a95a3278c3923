"""The report as Markdown, ready to paste into a GitHub issue.

What comes from the server (names, stacks, log lines) stands in code, where Markdown and GitHub do not touch it; words
of ours that may quote it are escaped, so that nobody is mentioned and nothing is rendered by accident.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.core.look import Frame
from firstlight.core.report import Finding, Report
from firstlight.core.words import printable, seconds
from firstlight.report import processes, sections, timeline
from firstlight.report.picture.mermaid import mermaid
from firstlight.report.picture.text import lines
from firstlight.report.stacks import tree_lines

CHARACTERS_MAX = 60_000
"""GitHub takes issues of 65,536."""
TOLD_MAX = 600
"""Kept free for naming what was left out."""
BAR_COLUMNS = 30
STEPS_MAX = 20

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~])")
_REFERENCE = re.compile(r"([@#])(?=\w)")


def markdown(report: Report, most: int = CHARACTERS_MAX) -> str:
    """The report as GitHub-flavoured Markdown of at most `most` characters (but never less than its frame). What is
    left out to fit is named at the end.
    """
    blocks = [block for block in _blocks(report) if block.text]
    room = most - TOLD_MAX
    kept = set()
    for index in sorted(range(len(blocks)), key=lambda index: blocks[index].dispensable):
        if not blocks[index].dispensable or len(blocks[index].text) + 2 <= room:
            kept.add(index)
            room -= len(blocks[index].text) + 2
    texts = [block.text for index, block in enumerate(blocks) if index in kept]
    left_out = Counter(block.name for index, block in enumerate(blocks) if index not in kept)
    if left_out:
        names = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in left_out.items())
        texts.append(f"*Left out to stay below {most:,} characters: {names}. `firstlight report` has the whole.*")
    return "\n\n".join(texts) + "\n"


class _Block(NamedTuple):
    """A part of the text; the more dispensable it is, the sooner it is left out. 0 is never."""

    name: str
    text: str
    dispensable: int


def _blocks(report: Report) -> Iterator[_Block]:
    yield _Block("", f"### {sections.outcome(report).capitalize()}: {_words(report.headline)}", 0)
    yield _Block("", _named(sections.facts(report)), 0)
    yield _Block("first token", _section("First token", _named(sections.token_facts(report))), 3)
    shown, left_out = sections.shown_findings(report.findings)
    for number, finding in enumerate(shown):
        text = _finding(finding) if number else _section("Findings", _finding(finding))
        yield _Block("finding", text, 1 if number == 0 else 3)
    yield _Block("finding", left_out, 3)
    steps = sections.first_of(report.next_steps, STEPS_MAX)
    yield _Block("what to do next", _section("What to do next", _bullets([_words(step) for step in steps])), 2)
    yield _Block("who waits for whom", _section("Who waits for whom", _graph(report)), 4)
    yield _Block("stacks", _section("Where the stacks part", _fence(tree_lines(report.tree, 120))), 5)
    error = [sections.log_line(report.first_error)] if report.first_error else []
    yield _Block("first error", _section("First error", _fence(error)), 4)
    for number, group in enumerate(processes.groups(report)):
        text = _group(report, group) if number else _section(processes.PROCESSES_TITLE, _group(report, group))
        yield _Block("process", text, 7)
    ended = _bullets([_code(line) for line in processes.ended(report)])
    yield _Block("ended processes", _section("Ended", ended), 5)
    yield _Block("phases", _section("Phases", _phases(report)), 6)
    yield _Block("log", _folded("Last lines of the log", _fence(sections.log_tail(report))), 8)
    weighed = [f"**{_words(word)}**: {_words(causes)}" for word, causes in sections.weighed(report)]
    yield _Block("other causes", _folded("Also weighed", _bullets(weighed)), 10)
    seen_not = _bullets([_words(gap) for gap in sections.gaps(report)])
    yield _Block("gaps", _section("What could not be seen", seen_not), 6)
    yield _Block("environment", _folded("Environment", _named(sections.environment(report))), 9)
    yield _Block("signature", _section("Signature", _named(sections.signature(report))), 6)
    yield _Block("files", _section("Files", _named(sections.files(report))), 4)


def _section(title: str, body: str) -> str:
    return f"#### {title}\n\n{body}" if body else ""


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""


def _bullets(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _named(rows: list[tuple[str, str]]) -> str:
    return _bullets([f"**{_words(name)}**: {_code(words)}" for name, words in rows])


def _graph(report: Report) -> str:
    """What GitHub draws, and the same in words, for where it does not."""
    words = _fence(lines(report.graph))
    drawn = mermaid(report.graph)
    return (
        "\n\n".join(["\n".join(["```mermaid", *drawn, "```"]), _folded("The same in words", words)])
        if drawn
        else words
    )


def _phases(report: Report) -> str:
    rows = []
    for bar in timeline.bars(report):
        before = min(BAR_COLUMNS - 1, int(bar.offset * BAR_COLUMNS))
        filled = "█" * max(1, min(BAR_COLUMNS - before, round(bar.share * BAR_COLUMNS)))
        note = f"  {bar.note}" if bar.note else ""
        rows.append(f"{bar.phase:<14}{seconds(bar.seconds):>12}  {' ' * before}{filled}{note}")
    return _fence([*rows, *timeline.strip_lines(report, BAR_COLUMNS)])


def _group(report: Report, group: processes.Group) -> str:
    told, others = processes.told(group)
    rows = []
    for process in told:
        facts = _words(processes.process_facts(report, process))
        rows.append(f"- **{_words(processes.process_title(report, process))}** {facts}")
        if process.last_words:
            rows.append(f"  last words: {_code(process.last_words)}")
    if others:
        rows.append(f"- {_words(others)}")
    if group.doing:
        rows.append(f"  - {_words(group.doing)}")
    rows += _where(group.where)
    for thread in group.threads:
        rows += [f"  - {_words(processes.thread_words(group, thread))}", *_where(thread.where)]
    return "\n".join(rows)


def _where(frames: tuple[Frame, ...]) -> Iterator[str]:
    """Frames in a code block under a point of a list."""
    if frames:
        block = _fence([processes.frame_words(frame) for frame in frames])
        yield "\n" + "\n".join(f"    {line}" for line in block.splitlines())


_QUOTED = frozenset({"seen", "against"})


def _finding(finding: Finding) -> str:
    verdict, title = sections.finding_words(finding)
    rows = [f"- **{_words(verdict)}**: {_words(title)}"]
    for kind, line in sections.finding_lines(finding):
        rows.append(f"  - {kind}: {_code(line) if kind in _QUOTED else _words(line)}")
    return "\n".join(rows)


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
