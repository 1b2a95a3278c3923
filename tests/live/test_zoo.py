"""The fault zoo, live: a real program, stuck for one planted reason, looked at and weighed as users would."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.attempt import look_now
from firstlight.clock import SystemClock
from firstlight.core.report import Report
from firstlight.core.vocabulary import Certainty
from firstlight.diagnose import reported
from firstlight.engines import recognise
from firstlight.supervise.attached import Attached, command_of
from firstlight.testing.zoo import FAULTS, Fault, Planted, planted

pytestmark = pytest.mark.timeout(180)

APART_S = 2.0


def diagnosed(struck: Planted) -> Report:
    clock = SystemClock()
    attached = Attached(struck.pid, clock)
    server = recognise(*command_of(struck.pid))
    return reported(look_now(attached, server, clock, apart_s=APART_S, say=lambda _: None))


@pytest.fixture(params=FAULTS, ids=lambda fault: fault.name)
def struck(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Planted]:
    fault: Fault = request.param
    if missing := fault.missing():
        pytest.skip(f"this fault needs {missing}")
    with planted(fault, tmp_path) as found:
        yield found


def test_the_planted_fault_is_found(struck: Planted) -> None:
    fault = struck.fault
    report = diagnosed(struck)
    told = {finding.id: finding for finding in report.findings}
    summary = "\n".join(f"{one.verdict} {one.id}: {one.title} {one.evidence}" for one in report.findings)
    assert wrongly_established(report, fault) == [], summary
    if not fault.cause:
        return
    assert fault.cause in told, f"{report.headline}\n{summary}"
    finding = told[fault.cause]
    assert finding.verdict == fault.certainty, summary
    assert re.search(fault.shows, " ".join(finding.evidence), re.IGNORECASE), summary
    if fault.blamed is not None:
        assert struck.pid_of(fault.blamed) in finding.pids, summary


def wrongly_established(report: Report, fault: Fault) -> list[str]:
    """What was established and is not what was planted."""
    sure = [finding.id for finding in report.findings if finding.verdict == Certainty.ESTABLISHED]
    return [cause for cause in sure if cause != fault.cause]
