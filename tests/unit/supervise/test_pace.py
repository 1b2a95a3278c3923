"""How fast a counter moves, and when its end is believed."""

import pytest

from firstlight.core.log import Counter
from firstlight.supervise.log.pace import BELIEVED_FOR_S, SAMPLES, Pace


def shards(done: float, total: float = 10) -> Counter:
    return Counter(done=done, total=total, unit="shards")


def fed(*readings: tuple[float, float]) -> Pace:
    pace = Pace()
    for at, done in readings:
        pace.see(shards(done), at)
    return pace


def test_one_reading_is_no_rate() -> None:
    assert Pace().eta_s(0.0) is None
    assert fed((0, 1)).eta_s(1.0) is None


def test_an_even_pace() -> None:
    assert fed((0, 0), (2, 1), (4, 2)).eta_s(4.0) == pytest.approx(16.0)


def test_waiting_counts_towards_the_end() -> None:
    assert fed((0, 0), (2, 1), (4, 2)).eta_s(5.0) == pytest.approx(15.0)


def test_repeated_readings_are_no_moves() -> None:
    assert fed((0, 0), (2, 1), (3, 1), (4, 2)).eta_s(4.0) == pytest.approx(16.0)


def test_a_full_counter_is_at_its_end() -> None:
    assert fed((0, 0), (1, 10)).eta_s(100.0) == 0.0


def test_a_counter_that_stopped_tells_no_end() -> None:
    pace = fed((0, 0), (1, 1), (2, 2))
    assert pace.eta_s(2.0 + BELIEVED_FOR_S) == 0.0
    assert pace.eta_s(2.1 + BELIEVED_FOR_S) is None


def test_slow_steps_are_given_time() -> None:
    assert fed((0, 0), (60, 1), (120, 2)).eta_s(120.0 + 299.0) is not None


@pytest.mark.parametrize("other", [shards(3, total=20), shards(1), Counter(done=5, total=10, unit="bytes")])
def test_another_counter_starts_afresh(other: Counter) -> None:
    pace = fed((0, 0), (1, 5))
    pace.see(other, 2.0)
    assert pace.counter == other
    assert pace.eta_s(2.0) is None


def test_the_pace_follows_a_change() -> None:
    pace = Pace()
    for step in range(SAMPLES):
        pace.see(shards(step, 1000), step * 10.0)
    slow = SAMPLES * 10.0
    for step in range(SAMPLES):
        pace.see(shards(SAMPLES + step, 1000), slow + step)
    assert pace.eta_s(slow + SAMPLES) == pytest.approx(1000 - 2 * SAMPLES, rel=0.01)
