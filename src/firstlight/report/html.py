"""The report as one HTML file: no script, nothing fetched, light and dark, readable on a phone and on paper."""

from collections.abc import Sequence
from html import escape
from importlib import resources

from firstlight.core.look import Frame
from firstlight.core.report import Finding, Report
from firstlight.core.words import date_and_time, printable
from firstlight.report import chart, processes, sections
from firstlight.report.markdown import markdown
from firstlight.report.picture.svg import svg
from firstlight.report.picture.text import lines
from firstlight.report.stacks import Stretch, folded, members, stretches


def html(report: Report) -> str:
    """The report as a whole HTML document. Everything that comes from the server is escaped; should something slip
    through all the same, the page's own policy forbids it to run or to fetch.
    """
    title = f"{sections.outcome(report)}: {', '.join(filter(None, (report.engine, report.run)))}"
    style = resources.files("firstlight.report").joinpath("report.css").read_text(encoding="utf-8")
    body = [
        _header(report),
        _section("First token", _named(sections.token_facts(report))),
        _section("Findings", _findings(report)),
        _section("What to do next", _list(sections.first_of(report.next_steps), "steps")),
        _section("Who waits for whom", _graph(report)),
        _section("Where the stacks part", _stacks(report)),
        _section("First error", _block([sections.log_line(report.first_error)] if report.first_error else [])),
        _section(processes.PROCESSES_TITLE, "".join(_group(report, group) for group in processes.groups(report))),
        _section("Ended", _list(processes.ended(report))),
        _section("Phases", chart.phases(report) + chart.lanes(report)),
        _section("Last lines of the log", _block(sections.log_tail(report))),
        _section("Also weighed", _named(sections.weighed(report))),
        _section("What could not be seen", _list(sections.gaps(report))),
        _section("Environment", _named(sections.environment(report))),
        _section("Signature", _named(sections.signature(report))),
        _section("Files", _named(sections.files(report))),
        _folded("As Markdown, to paste into an issue", _block(markdown(report).splitlines())),
    ]
    return _PAGE.format(title=_text(title), style=style, body="\n".join(part for part in body if part))


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def _header(report: Report) -> str:
    word = sections.outcome(report)
    when = f"{date_and_time(report.started)} to {date_and_time(report.ended)}"
    return (
        f'<header class="{report.outcome}"><p class="outcome">{word}</p><h1>{_text(report.headline)}</h1>'
        f'<p class="when">firstlight, {when}</p></header>\n{_named(sections.facts(report))}'
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>\n{body}</section>" if body else ""


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n{body}</details>" if body else ""


def _named(rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    return "<dl>" + "".join(f"<dt>{_text(name)}</dt><dd>{_text(words)}</dd>" for name, words in rows) + "</dl>\n"


def _list(lines: Sequence[str], kind: str = "") -> str:
    classed = f' class="{kind}"' if kind else ""
    return f"<ul{classed}>" + "".join(f"<li>{_text(line)}</li>" for line in lines) + "</ul>\n" if lines else ""


def _block(lines: Sequence[str], kind: str = "") -> str:
    classed = f' class="{kind}"' if kind else ""
    return f"<pre{classed}>{escape(chr(10).join(lines))}</pre>\n" if lines else ""


def _graph(report: Report) -> str:
    drawn = svg(report.graph)
    if not drawn:
        return ""
    return (
        f'<div class="picture" tabindex="0" role="group" aria-label="The wait-for graph; it scrolls sideways">{drawn}'
        '</div>\n<p class="legend">An arrow leads from who waits to whom it waits for; at the bottom the waiting '
        "ends. Thick arrows are a deadlock, ◆ is whom the findings name, a dashed outline has ended.</p>\n"
        + _folded("The same in words", _block(lines(report.graph), "drawn"))
    )


def _stacks(report: Report) -> str:
    tree = report.tree
    roots = "".join(_stretch(report, root, 0) for root in stretches(tree))
    return f'<div class="tree">{roots}</div>\n' if roots else ""


OPEN_DEPTH = 4
"""So deep the tree is unfolded at first."""


def _stretch(report: Report, stretch: Stretch, depth: int) -> str:
    begin, middle, end = folded(stretch.frames)
    fold = _folded(f"{len(middle)} frames between", _frames(middle))
    onward = "".join(_stretch(report, following, depth + 1) for following in stretch.onward)
    rest = f'<p class="doing">… {stretch.left_out} frames more beneath</p>' if stretch.left_out else ""
    odd = "" if stretch.usual else " odd"
    return (
        f'<details class="stretch{odd}"{" open" if depth < OPEN_DEPTH else ""}>'
        f"<summary><b>{_text(members(report.tree, stretch))}</b> in {_text(stretch.frames[-1].function)}</summary>"
        f"{_frames(begin)}{fold}{_frames(end)}{onward}{rest}</details>"
    )


def _frames(lines: Sequence[str]) -> str:
    return '<ol class="stack">' + "".join(f"<li>{_text(line)}</li>" for line in lines) + "</ol>" if lines else ""


def _group(report: Report, group: processes.Group) -> str:
    told, others = processes.told(group)
    people = "".join(
        f"<p><b>{_text(processes.process_title(report, process))}</b> "
        + _text(processes.process_facts(report, process))
        + (f"<br>last words: <q>{_text(process.last_words)}</q>" if process.last_words else "")
        + "</p>"
        for process in told
    )
    rest = f"<p>{_text(others)}</p>" if others else ""
    doing = f'<p class="doing">{_text(group.doing)}</p>' if group.doing else ""
    threads = "".join(
        f'<p class="doing">{_text(processes.thread_words(group, thread))}</p>{_where(thread.where)}'
        for thread in group.threads
    )
    return f"<article>{people}{rest}{doing}{_where(group.where)}{threads}</article>\n"


def _where(frames: Sequence[Frame]) -> str:
    return _frames([processes.frame_words(frame) for frame in frames])


_KINDS = {
    "seen": "seen",
    "against": "seen against it",
    "unseen": "could not be asked",
    "try": "what to do",
    "mind": "mind",
}
_QUOTED = frozenset({"seen", "against"})


def _findings(report: Report) -> str:
    shown, left_out = sections.shown_findings(report.findings)
    return "".join(map(_finding, shown)) + (f"<p>{escape(left_out)}</p>\n" if left_out else "")


def _finding(finding: Finding) -> str:
    verdict, title = sections.finding_words(finding)
    by_kind: dict[str, list[str]] = {}
    for kind, line in sections.finding_lines(finding):
        by_kind.setdefault(kind, []).append(line)
    rows = "".join(
        f'<div class="{kind}"><h4>{_KINDS[kind]}</h4><ul>'
        + "".join(f"<li><q>{_text(line)}</q></li>" if kind in _QUOTED else f"<li>{_text(line)}</li>" for line in said)
        + "</ul></div>"
        for kind, said in by_kind.items()
    )
    certainty = verdict if verdict in _CERTAIN else "open"
    return (
        f'<article class="finding {certainty}"><h3><span class="verdict">{_text(verdict)}</span> {_text(title)}</h3>'
        f"{rows}</article>\n"
    )


_CERTAIN = frozenset({"established", "supported", "open"})


def _text(words: str) -> str:
    return escape(printable(words, 4000))
