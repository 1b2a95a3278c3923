"""Waiting for helper processes, with a deadline and a name."""

import time
from collections.abc import Callable

import pytest

from firstlight.clock import Clock, SystemClock

DEADLINE_S = 20.0


class Eventually:
    """`eventually(condition, "what is awaited")`: waits for it to be true, with a deadline and a name."""

    def __call__(self, condition: Callable[[], object], what: str) -> None:
        ends = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < ends, f"waited {DEADLINE_S:.0f} s for {what}"
            time.sleep(0.005)


@pytest.fixture
def eventually() -> Eventually:
    return Eventually()


@pytest.fixture
def clock() -> Clock:
    return SystemClock()
