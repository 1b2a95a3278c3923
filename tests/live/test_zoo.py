"""The fault zoo, live: a real program, stuck for one planted reason, looked at and weighed as users would.

Most faults wait, and so does a look between its two halves: they are planted and looked at side by side.
"""

import html as markup
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from firstlight.attempt import look_now
from firstlight.clock import SystemClock
from firstlight.core.report import Finding, Report
from firstlight.core.vocabulary import Certainty
from firstlight.diagnose import reported
from firstlight.engines import recognise
from firstlight.report.html import html
from firstlight.report.markdown import markdown
from firstlight.report.terminal import terminal
from firstlight.supervise.attached import Attached, command_of
from firstlight.testing.zoo import FAULTS, Fault, Planted, planted

pytestmark = pytest.mark.timeout(900)

APART_S = 2.0
SLEEPERS = 5
BURNERS = 1


@dataclass(frozen=True)
class Told:
    """What was said of a fault; `blamed` is the pid that should be named, 0 where nobody is to blame."""

    fault: Fault
    report: Report
    blamed: int

    @property
    def finding(self) -> Finding:
        """The finding of the planted cause."""
        found = [one for one in self.report.findings if one.id == self.fault.cause]
        assert found, f"{self.fault.cause} is not told\n{self.summary}"
        return found[0]

    @property
    def decisive(self) -> str:
        """The observation that must be shown."""
        seen = [quote for quote in self.finding.evidence if re.search(self.fault.shows, quote, re.IGNORECASE)]
        assert seen, f"{self.fault.shows} is not among the evidence\n{self.summary}"
        return seen[0]

    @property
    def summary(self) -> str:
        findings = (f"{one.verdict} {one.id}: {one.title} {one.evidence}" for one in self.report.findings)
        return "\n".join([self.report.headline, *findings])


def diagnosed(struck: Planted) -> Report:
    clock = SystemClock()
    attached = Attached(struck.pid, clock)
    server = recognise(*command_of(struck.pid))
    return reported(look_now(attached, server, clock, apart_s=APART_S, say=lambda _: None))


def told_of(fault: Fault, folder: Path) -> Told:
    with planted(fault, folder) as struck:
        blamed = 0 if fault.blamed is None or not fault.cause else struck.pid_of(fault.blamed)
        return Told(fault, diagnosed(struck), blamed)


class Zoo:
    """Every fault that the collected tests ask for, planted or told."""

    def __init__(self, faults: list[Fault], folder: Path) -> None:
        self._pools = {burns: ThreadPoolExecutor(BURNERS if burns else SLEEPERS) for burns in (True, False)}
        self._told: dict[Fault, Future[Told]] = {}
        for fault in faults:
            place = folder / fault.name
            place.mkdir()
            self._told[fault] = self._pools[fault.burns].submit(told_of, fault, place)

    def told(self, fault: Fault) -> Told:
        return self._told[fault].result()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="session")
def zoo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    asked = [item.callspec.params.get("fault") for item in request.session.items if hasattr(item, "callspec")]
    faults = [fault for fault in dict.fromkeys(asked) if isinstance(fault, Fault) and not fault.missing()]
    opened = Zoo(faults, tmp_path_factory.mktemp("zoo"))
    yield opened
    opened.close()


@pytest.fixture
def told(zoo: Zoo, fault: Fault) -> Told:
    if missing := fault.missing():
        pytest.skip(f"this fault needs {missing}")
    return zoo.told(fault)


def name_of(fault: Fault) -> str:
    return fault.name


every_fault = pytest.mark.parametrize("fault", FAULTS, ids=name_of)
every_known_fault = pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.cause], ids=name_of)


@every_known_fault
def test_the_planted_cause_is_found(told: Told) -> None:
    assert told.finding.verdict == told.fault.certainty, told.summary
    assert told.decisive
    assert not told.blamed or told.blamed in told.finding.pids, told.summary


@every_fault
def test_nothing_else_is_established(told: Told) -> None:
    sure = [finding.id for finding in told.report.findings if finding.verdict == Certainty.ESTABLISHED]
    assert [cause for cause in sure if cause != told.fault.cause] == [], told.summary


@every_known_fault
def test_the_headline_says_who_or_why(told: Told) -> None:
    headline = told.report.headline
    assert told.finding.title in headline or (told.blamed and f"pid {told.blamed}" in headline), told.summary


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if not fault.cause], ids=name_of)
def test_a_cause_that_cannot_be_known_is_unknown(told: Told) -> None:
    assert "cause unknown" in told.report.headline
    assert told.report.next_steps, "what to collect next"


@every_known_fault
@pytest.mark.parametrize("form", [html, markdown, terminal], ids=lambda form: form.__name__)
def test_every_form_of_the_report_shows_the_decisive_observation(told: Told, form: Callable[[Report], str]) -> None:
    assert letters(told.decisive) in letters(markup.unescape(form(told.report)))


def letters(text: str) -> str:
    """The letters and digits alone: forms break and mark up lines in their own ways."""
    return re.sub(r"[\W_]+", "", text)
