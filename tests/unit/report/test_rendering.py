"""The same report in every form: compared whole with golden files, and attacked.

To accept a changed wording, look at what `FIRSTLIGHT_GOLDEN=write pytest tests/unit/report` changes in golden/.
"""

import os
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len

from firstlight.core.record import to_json
from firstlight.core.report import Report
from firstlight.core.vocabulary import Outcome
from firstlight.report.html import html
from firstlight.report.markdown import markdown
from firstlight.report.terminal import terminal

GOLDEN = Path(__file__).parent / "golden"
FORMS: dict[str, Callable[[Report], str]] = {"txt": terminal, "md": markdown, "html": html}


@pytest.fixture(params=["serving", "stalled", "exited", "rich"])
def named(request: pytest.FixtureRequest) -> tuple[str, Report]:
    return request.param, request.getfixturevalue(request.param)


@pytest.mark.parametrize("suffix", FORMS)
def test_a_report_reads_as_agreed(named: tuple[str, Report], suffix: str) -> None:
    name, report = named
    golden = GOLDEN / f"{name}.{suffix}"
    text = FORMS[suffix](report)
    if os.environ.get("FIRSTLIGHT_GOLDEN") == "write":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("suffix", FORMS)
def test_every_outcome_can_be_said_in_every_form(stalled: Report, outcome: Outcome, suffix: str) -> None:
    text = FORMS[suffix](msgspec.structs.replace(stalled, outcome=outcome))
    assert stalled.headline[:60] in text.replace("\\", "")
    assert ("NOT STARTED" in text.upper()) == (outcome is Outcome.NOT_STARTED)


@pytest.mark.parametrize("suffix", FORMS)
def test_what_was_found_and_what_to_do_stand_before_what_it_rests_on(stalled: Report, suffix: str) -> None:
    text = FORMS[suffix](stalled).partition("As Markdown")[0]
    titles = ["Findings", "What to do next", "Processes, as last seen", "Phases", "Last lines of the log"]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)


def test_json_is_the_report_itself(named: tuple[str, Report]) -> None:
    assert msgspec.json.decode(to_json(named[1]), type=Report) == named[1]


def test_a_report_of_before_there_were_graphs_still_reads_and_renders(stalled: Report) -> None:
    new = ("weighed", "graph", "tree", "signature", "strips", "environment")
    old = {name: value for name, value in msgspec.to_builtins(stalled).items() if name not in new}
    for finding in old["findings"]:
        for name in ("against", "unseen", "traps"):
            del finding[name]
    report = msgspec.json.decode(msgspec.json.encode(old), type=Report)
    assert report == stalled
    for form in FORMS.values():
        assert "Who waits for whom" not in form(report)


class TestTerminal:
    @pytest.mark.parametrize("width", [40, 60, 80, 100])
    def test_no_line_is_wider_than_asked_for(self, named: tuple[str, Report], width: int) -> None:
        assert max(map(cell_len, terminal(named[1], width=width).splitlines())) <= width

    def test_colour_only_where_asked_for(self, stalled: Report) -> None:
        plain, coloured = terminal(stalled), terminal(stalled, colour=True)
        assert "\x1b" not in plain
        assert "\x1b[1;31mSTALLED" in coloured

    def test_no_escape_of_the_servers_reaches_the_terminal(self, hostile: Report) -> None:
        text = terminal(hostile)
        assert all(char.isprintable() for char in text.replace("\n", ""))
        assert len(text) < 50_000


class TestHtml:
    def test_nothing_of_the_servers_becomes_markup(self, hostile: Report, rich: Report) -> None:
        assert _Tags.of(html(hostile)).names <= _Tags.of(html(rich)).names
        assert "<script" not in html(hostile)

    def test_it_fetches_nothing_and_runs_nothing(self, named: tuple[str, Report]) -> None:
        page = _Tags.of(html(named[1]))
        assert not page.names & {"script", "link", "img", "iframe", "object", "a", "form", "base"}
        assert not {"src", "href", "onclick", "onload"} & page.attributes
        assert "url(" not in html(named[1]).replace("<dt>url</dt>", "")
        assert "default-src 'none'" in html(named[1])

    def test_it_knows_dark_and_narrow_screens(self, serving: Report) -> None:
        page = html(serving)
        assert "prefers-color-scheme: dark" in page
        assert 'name="viewport"' in page

    def test_every_tag_is_closed(self, named: tuple[str, Report]) -> None:
        assert _Tags.of(html(named[1])).unclosed == []

    def test_64_ranks_fit_into_a_megabyte(self, many: Report) -> None:
        apart = tuple(
            msgspec.structs.replace(process, doing=f"waits for {process.pid}") for process in many.processes
        )
        assert len(html(msgspec.structs.replace(many, processes=apart)).encode()) < 1_000_000


class TestMarkdown:
    def test_nobody_is_mentioned_and_nothing_is_rendered(self, hostile: Report) -> None:
        outside = _outside_code(markdown(hostile))
        assert "@octocat" not in outside
        assert "#1 " not in outside
        assert "<script" not in outside.replace("\\<", "")

    def test_the_graph_is_a_diagram_with_words_to_fall_back_on(self, rich: Report) -> None:
        drawn, _, words = markdown(rich).partition("```mermaid")[2].partition("\n```\n")
        assert "flowchart TD" in drawn
        assert "The same in words" in words[:100]

    def test_it_fits_into_an_issue_and_says_what_is_left_out(self, many: Report) -> None:
        lines = tuple(
            msgspec.structs.replace(many.log_tail[0], text=f"{n} {'x' * 900}", message=f"{n}") for n in range(90)
        )
        long = markdown(msgspec.structs.replace(many, log_tail=lines))
        assert len(long) < 60_000
        assert "Left out to stay below 60,000 characters: log." in long
        assert "Left out" not in markdown(many)

    def test_what_matters_most_is_left_out_last(self, rich: Report) -> None:
        sizes = [len(markdown(rich, most)) for most in range(400, 9000, 200)]
        assert all(after > before - 40 for before, after in pairwise(sizes))
        short = markdown(rich, 3000)
        assert len(short) < 3000
        assert all(title in short for title in ("### Stalled", "#### Findings", "#### What to do next"))
        assert "Environment" not in short.partition("Left out")[0]
        assert "1 × " not in short

    def test_a_flood_stays_below_the_limit(self, hostile: Report) -> None:
        flood = msgspec.structs.replace(
            hostile,
            findings=hostile.findings * 500,
            gaps=hostile.gaps * 500,
            environment=hostile.environment * 500,
            command=("x" * 5000,) * 500,
            headline="`" * 100_000,
        )
        assert len(markdown(flood)) < 60_000
        assert len(html(flood).encode()) < 5_000_000

    def test_a_fence_is_longer_than_the_backticks_in_it(self, stalled: Report) -> None:
        tail = (msgspec.structs.replace(stalled.log_tail[0], text="```` </details> ````"),)
        text = markdown(msgspec.structs.replace(stalled, log_tail=tail))
        assert "`````text\n```` </details> ````\n`````" in text


class _Tags(HTMLParser):
    """What a browser would see of a page."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.unclosed: list[str] = []

    @classmethod
    def of(cls, page: str) -> "_Tags":
        seen = cls()
        seen.feed(page)
        seen.close()
        return seen

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.unclosed.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed.pop() == tag


def _outside_code(text: str) -> str:
    """Markdown without its fenced blocks and code spans."""
    kept, fence = [], ""
    for line in text.splitlines():
        bare = line.strip()
        if not fence and bare.startswith("```"):
            fence = bare[: len(bare) - len(bare.lstrip("`"))]
        elif fence and bare == fence:
            fence = ""
        elif not fence:
            kept.append(_without_spans(line))
    return "\n".join(kept)


def _without_spans(line: str) -> str:
    kept = ""
    while line:
        if line.startswith("\\"):
            kept, line = kept + line[:2], line[2:]
        elif line.startswith("`"):
            ticks = line[: len(line) - len(line.lstrip("`"))]
            _, found, rest = line[len(ticks) :].partition(ticks)
            assert found, f"an open code span: {line}"
            line = rest
        else:
            kept, line = kept + line[0], line[1:]
    return kept


def test_the_title_of_a_look_names_no_run(serving: Report) -> None:
    page = html(msgspec.structs.replace(serving, run="", outcome=Outcome.LOOKED, engine="vllm"))
    assert "<title>looked at: vllm</title>" in page
