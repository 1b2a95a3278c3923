"""A call in the background gives its result, or a gap that says how it failed; it never raises into the watcher."""

import time
from collections.abc import Callable

import pytest

from firstlight.core.gap import Gap
from firstlight.supervise.background import Background


def result_of(call: Callable[[], int]) -> int | Gap:
    background = Background(call, "a question")
    ends = time.monotonic() + 30.0
    while (result := background.poll()) is None:
        assert time.monotonic() < ends, "waited 30 s for a call that ends at once"
        time.sleep(0.005)
    return result


def test_the_result_is_given() -> None:
    assert result_of(lambda: 7) == 7


@pytest.mark.parametrize("error", [ValueError("caf\ud800"), SystemExit(3), KeyboardInterrupt()])
def test_a_failure_is_a_gap(error: BaseException) -> None:
    def fail() -> int:
        raise error

    gap = result_of(fail)
    assert isinstance(gap, Gap)
    assert gap.what == "a question"
    assert type(error).__name__ in gap.detail
    assert "\ud800" not in gap.detail
