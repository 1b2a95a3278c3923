"""The slow starts of tests/live at the length that people meet: two minutes of compile, 90 s of silence."""

import pytest

from firstlight.core.events import MotionChanged
from firstlight.core.vocabulary import Motion, Outcome
from firstlight.testing.running import Ended
from firstlight.testing.scenarios import FULL_LENGTH

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]


@pytest.mark.parametrize("scenario", FULL_LENGTH, ids=lambda scenario: scenario.name)
def test_it_comes_up_and_is_never_called_a_stall(ended: Ended) -> None:
    assert ended.code == 0, ended.stderr[-4000:]
    assert ended.report.outcome is Outcome.SERVING
    assert [event.why for event in ended.all(MotionChanged) if event.motion is Motion.STALLED] == []
