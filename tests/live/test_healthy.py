"""Slow starts that really work, live: every one must come up, and none may be called a stall on the way."""

import pytest

from firstlight.core.events import MotionChanged, Stopped
from firstlight.core.vocabulary import Certainty, Motion, Outcome
from firstlight.testing.running import Ended
from firstlight.testing.scenarios import HEALTHY, HEALTHY_WAYS

pytestmark = pytest.mark.timeout(900)

SLEEPER = HEALTHY[0]
every_start = pytest.mark.parametrize("scenario", HEALTHY, ids=lambda scenario: scenario.name)


@every_start
def test_it_comes_up_with_a_verified_token(ended: Ended) -> None:
    assert ended.code == 0, ended.stderr[-4000:]
    assert ended.report.outcome is Outcome.SERVING
    assert ended.report.first_token is not None
    assert ended.report.first_token.text == " light"


@every_start
def test_it_is_never_called_a_stall(ended: Ended) -> None:
    assert [event.why for event in ended.all(MotionChanged) if event.motion is Motion.STALLED] == []


@every_start
def test_nothing_is_found_wrong_with_it(ended: Ended) -> None:
    assert ended.report.findings == ended.report.weighed == ()


@every_start
def test_once_stops_the_server_and_leaves_nothing(ended: Ended) -> None:
    assert ended.left == ()
    assert len(ended.all(Stopped)) == 1


@pytest.mark.parametrize("scenario", [SLEEPER], ids=[SLEEPER.name])
def test_who_sleeps_long_is_said_to_sleep(ended: Ended) -> None:
    whys = [event.why for event in ended.all(MotionChanged) if event.motion is Motion.QUIET]
    assert [why for why in whys if "is asleep and wakes in" in why]


@pytest.mark.parametrize("scenario", HEALTHY_WAYS, ids=lambda scenario: scenario.options[1])
def test_whatever_shows_that_it_works_will_do(ended: Ended) -> None:
    assert [event.why for event in ended.all(MotionChanged) if event.motion is Motion.STALLED] == []
    assert ended.code == 0, ended.stderr[-4000:]
    assert ended.report.outcome is Outcome.SERVING
    assert [finding.id for finding in ended.report.findings if finding.verdict == Certainty.ESTABLISHED] == []
    assert ended.left == ()
