"""The report as one HTML file: no script, nothing fetched, light and dark, readable on a phone."""

from html import escape
from importlib import resources

from firstlight.core.report import Finding, Report
from firstlight.core.words import date_and_time, gap_words, printable, seconds
from firstlight.report import sections
from firstlight.report.markdown import markdown


def html(report: Report) -> str:
    """The report as a whole HTML document. Everything that comes from the server is escaped; should something slip
    through all the same, the page's own policy forbids it to run or to fetch.
    """
    title = f"{sections.outcome(report)}: {report.engine}, {report.run}"
    style = resources.files("firstlight.report").joinpath("report.css").read_text(encoding="utf-8")
    body = [
        _header(report),
        _section("First token", _named(sections.token_facts(report))),
        _section("Findings", "".join(_finding(finding) for finding in report.findings)),
        _section("What to do next", _list(report.next_steps)),
        _section("First error", _block([sections.log_line(report.first_error)] if report.first_error else [])),
        _section(sections.PROCESSES_TITLE, "".join(_group(report, group) for group in sections.groups(report))),
        _section("Ended", _list(sections.ended(report))),
        _section("Phases", _phases(report)),
        _section("Last lines of the log", _block(sections.log_tail(report))),
        _section("What could not be seen", _list([gap_words(gap) for gap in report.gaps])),
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
    return f"<details><summary>{title}</summary>\n{body}</details>"


def _named(rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{_text(words)}</dd>" for name, words in rows) + "</dl>\n"


def _list(lines: list[str] | tuple[str, ...]) -> str:
    return "<ul>" + "".join(f"<li>{_text(line)}</li>" for line in lines) + "</ul>\n" if lines else ""


def _block(lines: list[str]) -> str:
    return f"<pre>{escape(chr(10).join(lines))}</pre>\n" if lines else ""


def _phases(report: Report) -> str:
    return "".join(
        f'<div class="phase{" stuck" if bar.stuck else ""}"><span>{bar.phase}</span>'
        f"<span>{seconds(bar.seconds)}{', did not end' if bar.stuck else ''}</span>"
        f'<div class="track"><div style="margin-left:{bar.offset:.2%};width:{bar.share:.2%}"></div></div></div>\n'
        for bar in sections.bars(report)
    )


def _group(report: Report, group: sections.Group) -> str:
    people = "".join(
        f"<p><b>{_text(sections.process_title(process))}</b> {_text(sections.process_facts(report, process))}"
        + (f"<br>last words: <q>{_text(process.last_words)}</q>" if process.last_words else "")
        + "</p>"
        for process in group.processes
    )
    doing = f'<p class="doing">{_text(group.doing)}</p>' if group.doing else ""
    frames = "".join(f"<li>{_text(sections.frame_words(frame))}</li>" for frame in group.where)
    stack = f'<ol class="stack">{frames}</ol>' if frames else ""
    return f"<article>{people}{doing}{stack}</article>\n"


def _finding(finding: Finding) -> str:
    verdict, title = sections.finding_words(finding)
    seen = "".join(f"<li><q>{_text(quote)}</q></li>" for quote in finding.evidence)
    advice = "".join(f'<li class="advice">{_text(words)}</li>' for words in finding.advice)
    return (
        f'<article><p><b class="verdict">{_text(verdict)}</b> {_text(title)}</p><ul>{seen}{advice}</ul></article>\n'
    )


def _text(words: str) -> str:
    return escape(printable(words, 4000))
