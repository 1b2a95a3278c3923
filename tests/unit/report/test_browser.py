"""The HTML report in a real browser: nothing runs, nothing overflows, everything is there, light and dark."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from firstlight.core.graph import WaitGraph
from firstlight.core.report import Report
from firstlight.report.html import html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DEADLINE_S = 60.0
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-pipe",
)
LAUNCHER = "import os, sys; [os.dup2(int(sys.argv[n]), n + 2) for n in (1, 2)]; os.execv(sys.argv[3], sys.argv[3:])"
"""Becomes the browser with the two pipes as descriptors 3 and 4, where it looks for them."""
LIGHT, DARK = "light", "dark"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


class Browser:
    """A headless Chromium with one page, spoken to over a pair of pipes (DevTools protocol: JSON, ended by NUL)."""

    def __init__(self, home: Path) -> None:
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_read, to_write)]
        launcher = [sys.executable, "-c", LAUNCHER, *map(str, theirs)]
        self._process = subprocess.Popen(
            [*launcher, str(CHROMIUM), *SWITCHES, f"--user-data-dir={home}", "about:blank"],
            pass_fds=theirs,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (to_read, to_write, *theirs):
            os.close(fd)
        self._unread = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._next(method)).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self, awaited: str) -> dict[str, Any]:
        ends = time.monotonic() + DEADLINE_S
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._in], [], [], max(0.0, ends - time.monotonic()))
            assert ready, f"the browser did not say anything about {awaited} for {DEADLINE_S:.0f} s"
            piece = os.read(self._in, 1 << 16)
            assert piece, f"the browser went away during {awaited}"
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        heard: dict[str, Any] = json.loads(message)
        return heard

    def open(self, path: Path, *, width: int, scheme: str) -> None:
        """Load a page from disk into a window of that width, and wait until it is there."""
        self.events.clear()
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next("loading the page"))

    def value(self, expression: str) -> Any:
        """What an expression is in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self) -> list[object]:
        """What stands in the console."""
        return [
            event["params"]
            for event in self.events
            if event.get("method") in {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}
        ]

    def fetched(self) -> list[str]:
        """The addresses of everything that was loaded."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def close(self) -> None:
        """End it; it may be slow, but not for ever."""
        with suppress(OSError):
            os.close(self._out)  # a browser whose pipe ends goes by itself
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._in)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = Browser(tmp_path_factory.mktemp("chromium"))
    yield chromium
    chromium.close()


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "report.html"


@pytest.fixture(params=["rich", "many", "hostile", "serving"])
def report(request: pytest.FixtureRequest) -> Report:
    found: Report = request.getfixturevalue(request.param)
    return found


HEADINGS = (
    "Findings",
    "What to do next",
    "Who waits for whom",
    "Where the stacks part",
    "Processes, as last seen",
    "Phases",
    "Last lines of the log",
    "Also weighed",
    "What could not be seen",
    "Environment",
    "Signature",
    "Files",
)


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
@pytest.mark.parametrize("width", [360, 1200])
def test_a_page_fits_its_window_and_is_quiet(
    browser: Browser, page: Path, report: Report, width: int, scheme: str
) -> None:
    page.write_text(html(report), encoding="utf-8")
    browser.open(page, width=width, scheme=scheme)
    browser.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.value("(e => e.scrollWidth - e.clientWidth)(document.documentElement)") <= 0
    assert browser.complaints() == []
    assert browser.fetched() == [page.as_uri()]
    dark = browser.value("matchMedia('(prefers-color-scheme: dark)').matches")
    paper = browser.value("getComputedStyle(document.body).backgroundColor")
    assert dark == (scheme == DARK)
    assert paper == ("rgb(21, 23, 26)" if dark else "rgb(253, 253, 251)")


def test_everything_of_a_rich_report_is_there(browser: Browser, page: Path, rich: Report) -> None:
    page.write_text(html(rich), encoding="utf-8")
    browser.open(page, width=1200, scheme=LIGHT)
    headings = browser.value("[...document.querySelectorAll('h2')].map(one => one.textContent)")
    assert headings == list(HEADINGS)
    assert browser.value("document.querySelector('h1').textContent") == rich.headline
    levels = browser.value("[...document.querySelectorAll('h1,h2,h3,h4')].map(one => Number(one.tagName[1]))")
    assert all(after - before <= 1 for before, after in pairwise(levels)), levels


@pytest.mark.parametrize("width", [360, 1200])
def test_the_graph_is_drawn_and_can_be_read(
    browser: Browser, page: Path, rich: Report, deadlock: WaitGraph, width: int
) -> None:
    for graph in (rich.graph, deadlock):
        page.write_text(html(msgspec.structs.replace(rich, graph=graph)), encoding="utf-8")
        browser.open(page, width=width, scheme=LIGHT)
        size = browser.value(
            "(r => [r.width, r.height])(document.querySelector('svg.graph').getBoundingClientRect())"
        )
        assert min(size) > 100
        shown = browser.value(
            "[...document.querySelectorAll('.graph .box .label')].map(e => e.textContent).join(' ')"
        )
        assert all(word in shown for word in ("ranks 0-6", "Worker_TP7") if graph is rich.graph)
        heights = browser.value(
            "[...document.querySelectorAll('.graph .label')].map(e => e.getBoundingClientRect().height)"
        )
        assert min(heights) >= 11, "too small to read"


def test_no_word_leaves_its_box_and_no_box_touches_another(browser: Browser, page: Path, many: Report) -> None:
    page.write_text(html(many), encoding="utf-8")
    browser.open(page, width=1200, scheme=LIGHT)
    sticking_out = browser.value(
        """[...document.querySelectorAll('.graph .box')].flatMap(box => {
             const outer = box.querySelector('.shape').getBoundingClientRect();
             return [...box.querySelectorAll('text')].filter(text => {
               const inner = text.getBoundingClientRect();
               return inner.left < outer.left || inner.right > outer.right
                 || inner.top < outer.top || inner.bottom > outer.bottom;
             }).map(text => text.textContent);
           })"""
    )
    assert sticking_out == []
    touching = browser.value(
        """(() => {
             const all = [...document.querySelectorAll('.graph .shape')].map(one => one.getBoundingClientRect());
             return all.flatMap((a, i) => all.slice(i + 1).filter(b =>
               a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)).length;
           })()"""
    )
    assert touching == 0


ATTACKS = (
    "<script>document.title='hacked'</script>",
    "<img src=x onerror=\"document.title='hacked'\">",
    '"><svg onload="document.title=\'hacked\'">',
    "' onmouseover='document.title=1' x='",
    "</title></svg><script>document.title='hacked'</script>",
    "</style></pre></details><script>document.title='hacked'</script>",
    "\u202egnp.exe",
    "&lt;script&gt;",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_name_runs_as_a_script(browser: Browser, page: Path, hostile: Report, attack: str) -> None:
    malice = msgspec.json.encode(hostile.headline).decode()[1:-1]
    text = msgspec.json.encode(hostile).decode().replace(malice, msgspec.json.encode(attack).decode()[1:-1])
    page.write_text(html(msgspec.json.decode(text, type=Report)), encoding="utf-8")
    browser.open(page, width=1200, scheme=LIGHT)
    assert browser.value("document.title").startswith("stalled: ")
    assert browser.value("document.querySelectorAll('script, img, [onload], [onerror], [onmouseover]').length") == 0
    assert browser.value("document.querySelectorAll('svg:not(.graph):not(.spark)').length") == 0
    assert browser.complaints() == []
