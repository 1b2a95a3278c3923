"""A probe that blocks, refuses or breaks is a gap; the look goes on."""

import threading

import pytest

from firstlight.clock import Deadline, SystemClock
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.workers import Probe


def within(seconds: float) -> Deadline:
    return Deadline(SystemClock(), seconds, "the probe")


def test_an_answer_comes_back() -> None:
    assert Probe("sum", lambda: 1 + 1).result(within(20)) == 2


def test_a_probe_that_blocks_is_abandoned() -> None:
    never = threading.Event()
    answer = Probe("stuck", never.wait, 7).result(within(0.05))
    never.set()
    assert isinstance(answer, Gap)
    assert (answer.reason, answer.what, answer.pid) == (GapReason.TIMED_OUT, "stuck", 7)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(1, "no"), GapReason.NO_PERMISSION),
        (FileNotFoundError(2, "gone"), GapReason.VANISHED),
        (ProcessLookupError("gone"), GapReason.VANISHED),
        (OSError(5, "I/O"), GapReason.FAILED),
        (ValueError("nonsense"), GapReason.FAILED),
    ],
)
def test_an_error_is_a_gap_with_its_reason(error: Exception, reason: GapReason) -> None:
    def work() -> int:
        raise error

    answer = Probe("thing", work).result(within(20))
    assert isinstance(answer, Gap)
    assert answer.reason is reason
