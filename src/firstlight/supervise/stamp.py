"""The two times that every event carries."""

from typing import TypedDict

from firstlight.clock import Clock


class Stamp(TypedDict):
    """`at` is wall time, `t` the seconds since the attempt began, from the monotonic clock."""

    at: float
    t: float


class Stamps:
    """Stamps for the events of one attempt, which begins when this is made."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()

    @property
    def elapsed_s(self) -> float:
        return self._clock.monotonic() - self._began

    def __call__(self) -> Stamp:
        return {"at": self._clock.wall(), "t": round(self.elapsed_s, 3)}
