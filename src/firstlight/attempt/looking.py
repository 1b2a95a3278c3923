"""Looking deeper while the watcher goes on: one pair of looks at a time, in the background."""

from firstlight.attempt.looker import Looker, TwoLooks
from firstlight.core.gap import Gap
from firstlight.diagnose import Change, sleeping
from firstlight.supervise.background import Background
from firstlight.supervise.liveness.judge import Confirmation
from firstlight.supervise.liveness.suspicion import Sleep

TWO_LOOKS_DEADLINE_S = 40.0


class Looking:
    """At most one pair of looks at a time."""

    def __init__(self, looker: Looker, *, apart_s: float) -> None:
        self._looker = looker
        self._clock = looker.clock
        self._apart_s = apart_s
        self.failure: Gap | None = None
        self._running: Background[TwoLooks] | None = None
        self._began = 0.0

    @property
    def running(self) -> bool:
        return self._running is not None

    def begin(self, why: str, port: int, apart_s: float | None = None) -> None:
        """Start looking, unless a pair is under way; the two are `apart_s` seconds apart, or as far as usual."""
        if self._running is None:
            self.failure = None
            self._began = self._clock.monotonic()
            self._running = Background(lambda: self._look_twice(why, port, apart_s), "two looks")

    def poll(self) -> TwoLooks | None:
        """The pair, once it is complete. A pair that is late is abandoned; why one failed is left in `failure`."""
        if self._running is None:
            return None
        result = self._running.poll()
        if result is not None or self._clock.monotonic() - self._began > TWO_LOOKS_DEADLINE_S:
            self._running = None
        if isinstance(result, Gap):
            self.failure = result
            return None
        return result

    def _look_twice(self, why: str, port: int, apart_s: float | None) -> TwoLooks:
        return self._looker.twice(port, apart_s=self._apart_s if apart_s is None else apart_s, why=why)


def confirmation(looks: TwoLooks) -> Confirmation:
    """What two looks say to liveness, which knows nothing of stacks."""
    by_change = {
        change: frozenset(one.id.pid for one in looks.difference.processes if one.change is change)
        for change in Change
    }
    return Confirmation(
        still=by_change[Change.STILL],
        spinning=by_change[Change.SPINNING],
        moving=by_change[Change.MOVING],
        sleeps={
            pid: Sleep(
                seconds=asleep.limit.seconds,
                seen_at=looks.second.monotonic,
                exact=asleep.limit.exact,
                slept_s=asleep.slept_s,
            )
            for pid, asleep in sleeping(looks.first, looks.second).items()
        },
    )
