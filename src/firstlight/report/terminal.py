"""The report for a terminal: the headline first, then what it rests on. Readable without colour."""

import io

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from firstlight.core.look import Frame
from firstlight.core.report import Finding, Report
from firstlight.core.vocabulary import Outcome
from firstlight.core.words import printable, seconds
from firstlight.report import processes, sections, timeline
from firstlight.report.picture.lines import cut
from firstlight.report.picture.text import lines as graph_lines
from firstlight.report.stacks import tree_lines

RED = (Outcome.STALLED, Outcome.EXITED, Outcome.NOT_STARTED)
OUTCOME_STYLE = {Outcome.SERVING: "bold green", **dict.fromkeys(RED, "bold red")}
BAR_COLUMNS_MAX = 40


def terminal(report: Report, *, width: int = 100, colour: bool = False) -> str:
    """The report as text of at most `width` columns, with terminal colours if `colour`."""
    paper = _Paper(width, colour)
    word = Text(sections.outcome(report).upper(), OUTCOME_STYLE.get(report.outcome, "bold yellow"))
    paper.line(Text.assemble(word, "  ", _plain(report.headline)))
    paper.table("", sections.facts(report))
    paper.table("First token", sections.token_facts(report))
    _findings(paper, report.findings)
    paper.items("What to do next", sections.first_of(report.next_steps))
    paper.drawing("Who waits for whom", graph_lines(report.graph, width - 2))
    paper.drawing("Where the stacks part", tree_lines(report.tree))
    if report.first_error is not None:
        paper.items("First error", [sections.log_line(report.first_error)])
    _processes(paper, report)
    paper.items("Ended", processes.ended(report))
    _phases(paper, report)
    paper.items("Last lines of the log", sections.log_tail(report))
    paper.table("Also weighed", sections.weighed(report, briefly=True))
    paper.items("What could not be seen", sections.gaps(report))
    paper.table("Environment", sections.environment(report))
    paper.table("Signature", sections.signature(report))
    paper.table("Files", sections.files(report))
    return paper.text()


def findings(found: tuple[Finding, ...], *, width: int = 100, colour: bool = False) -> str:
    """Findings alone, as `terminal` shows them in a report."""
    paper = _Paper(width, colour)
    _findings(paper, found)
    return paper.text().lstrip("\n")


class _Paper:
    """Sections of lines, wrapped to a width."""

    def __init__(self, width: int, colour: bool) -> None:
        self.width = width
        self._out = io.StringIO()
        self._console = Console(
            file=self._out,
            width=width,
            force_terminal=colour,
            no_color=not colour,
            color_system="standard" if colour else None,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def text(self) -> str:
        return "".join(f"{line.rstrip()}\n" for line in self._out.getvalue().splitlines())

    def line(self, words: Text | str, indent: int = 0) -> None:
        """A paragraph; what does not fit is wrapped under its own beginning."""
        text = _plain(words) if isinstance(words, str) else words
        self._console.print(Padding(text, (0, 0, 0, indent)))

    def heading(self, title: str) -> None:
        self._console.print()
        if title:
            self._console.print(Text(title, "bold"))

    def items(self, title: str, lines: list[str]) -> None:
        """A section of paragraphs; none, no section."""
        if lines:
            self.heading(title)
        for line in lines:
            self.line(line, 2)

    def drawing(self, title: str, lines: list[str]) -> None:
        """A section of lines that belong under each other; what does not fit is cut, not wrapped."""
        if lines:
            self.heading(title)
        for line in lines:
            self.line(cut(line, self.width - 2), 2)

    def table(self, title: str, rows: list[tuple[str, str]]) -> None:
        """A section of names and values."""
        if not rows:
            return
        self.heading(title)
        column = max(len(name) for name, _ in rows) + 2
        for name, words in rows:
            wrapped = _plain(words).wrap(self._console, max(20, self.width - column - 2))
            for number, part in enumerate(wrapped):
                self.line(Text.assemble((name if number == 0 else "").ljust(column), part), 2)


def _phases(paper: _Paper, report: Report) -> None:
    bars = timeline.bars(report)
    columns = max(10, min(BAR_COLUMNS_MAX, paper.width - 45))
    series = timeline.strip_lines(report, columns)
    if bars or series:
        paper.heading("Phases")
    for bar in bars:
        before = min(columns - 1, int(bar.offset * columns))
        filled = "█" * max(1, min(columns - before, round(bar.share * columns)))
        name = f"{bar.phase:<14}{seconds(bar.seconds):>12}  {' ' * before}"
        note = f"  {bar.note}" if bar.note else ""
        paper.line(Text.assemble(name, (filled, "red" if bar.stuck else "blue"), note), 2)
    for line in series:
        paper.line(cut(line, paper.width - 2), 2)


def _processes(paper: _Paper, report: Report) -> None:
    groups = processes.groups(report)
    if groups:
        paper.heading(processes.PROCESSES_TITLE)
    for group in groups:
        members, others = processes.told(group)
        for process in members:
            title = (processes.process_title(report, process), "bold")
            paper.line(Text.assemble(title, f"  {processes.process_facts(report, process)}"), 2)
            if process.last_words:
                paper.line(f"last words: {printable(process.last_words, 300)}", 6)
        if others:
            paper.line(others, 2)
        if group.doing:
            paper.line(printable(group.doing), 4)
        _where(paper, group.where)
        for thread in group.threads:
            paper.line(processes.thread_words(group, thread), 4)
            _where(paper, thread.where)


def _where(paper: _Paper, frames: tuple[Frame, ...]) -> None:
    for depth, frame in enumerate(frames):
        paper.line(f"{'from' if depth else 'at'} {processes.frame_words(frame)}", 6)


def _findings(paper: _Paper, findings: tuple[Finding, ...]) -> None:
    if findings:
        paper.heading("Findings")
    shown, left_out = sections.shown_findings(findings)
    for finding in shown:
        verdict, title = sections.finding_words(finding)
        paper.line(Text.assemble((verdict, "bold"), f": {title}"), 2)
        lines = sections.finding_lines(finding)
        column = max((len(kind) for kind, _ in lines), default=0) + 2
        for kind, line in lines:
            paper.line(f"{f'{kind}:':<{column}}{line}", 6)
    if left_out:
        paper.line(left_out, 2)


def _plain(words: str) -> Text:
    return Text(printable(words, 4000))
