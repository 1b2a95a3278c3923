"""How fast a counter moves, and when it will be full."""

from collections import deque

from firstlight.core.log import Counter

SAMPLES = 20
"""Moves that the rate is taken over: enough to smooth uneven shards, few enough to follow a change of pace."""

BELIEVED_FOR_STEPS = 5.0
BELIEVED_FOR_S = 10.0
"""A counter that has not moved for this many usual steps, and at least this long, tells no end any more."""


class Pace:
    """The rate of one counter over its last moves."""

    def __init__(self) -> None:
        self.counter: Counter | None = None
        self._moves: deque[tuple[float, float]] = deque(maxlen=SAMPLES)

    def see(self, counter: Counter, at: float) -> None:
        """Take in a reading at time `at`. Another unit or total, or a step back, is a new counter."""
        before = self.counter
        if (
            before is None
            or (before.unit, before.total) != (counter.unit, counter.total)
            or counter.done < before.done
        ):
            self._moves.clear()
        elif counter.done == before.done:
            return
        self.counter = counter
        self._moves.append((at, counter.done))

    def eta_s(self, now: float) -> float | None:
        """Seconds until the counter is full, 0 when it is; None without a rate or when it has stopped moving."""
        if self.counter is None:
            return None
        left = self.counter.total - self.counter.done
        if left <= 0:
            return 0.0
        began, first = self._moves[0]
        last_at, last = self._moves[-1]
        took = last_at - began
        if took <= 0 or last <= first:
            return None
        waited = max(0.0, now - last_at)
        usual_step = took / (len(self._moves) - 1)
        if waited > max(BELIEVED_FOR_S, BELIEVED_FOR_STEPS * usual_step):
            return None
        return max(0.0, left * took / (last - first) - waited)
