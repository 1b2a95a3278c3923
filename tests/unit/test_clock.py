"""Time that cannot be bent: what a run measures is the same whether the system's clock jumps or not."""

import time

import pytest

from firstlight.clock import Deadline, HandClock, SystemClock
from firstlight.supervise.stamp import Stamps


def test_a_jump_of_the_system_clock_is_told_and_bends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    before, stamps = clock.wall(), Stamps(clock)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3600)
    assert clock.wall() >= before
    assert stamps()["at"] >= before
    assert stamps()["t"] >= 0
    assert clock.jumped_s() == pytest.approx(-3600, abs=60)


def test_a_deadline_does_not_heed_the_wall_clock() -> None:
    clock = HandClock()
    deadline = Deadline(clock, 5, "the first token")
    clock.jump_wall(3600)
    assert not deadline.passed
    assert deadline.left == 5
    clock.advance(5)
    assert deadline.passed
