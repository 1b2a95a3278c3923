"""Two looks some seconds apart, in the background: "slow or stuck" is a difference, not a snapshot."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from firstlight import evidence
from firstlight.clock import Clock
from firstlight.core.gap import Gap
from firstlight.core.look import Look
from firstlight.core.process import Process
from firstlight.diagnose import Change, Difference, compare
from firstlight.supervise.background import Background
from firstlight.supervise.liveness.judge import Confirmation

LOOK_DEADLINE_S = 8.0
TWO_LOOKS_DEADLINE_S = 40.0


@dataclass(frozen=True)
class TwoLooks:
    """What two looks showed, and why they were taken."""

    why: str
    first: Look
    second: Look
    difference: Difference
    took_s: float


class Looking:
    """At most one pair of looks at a time."""

    def __init__(self, looker: "Looker", *, apart_s: float) -> None:
        self._looker = looker
        self._clock = looker.clock
        self._apart_s = apart_s
        self.failure: Gap | None = None
        self._running: Background[TwoLooks] | None = None
        self._began = 0.0

    @property
    def running(self) -> bool:
        return self._running is not None

    def begin(self, why: str, port: int) -> None:
        """Start looking, unless a pair is under way."""
        if self._running is None:
            self.failure = None
            self._began = self._clock.monotonic()
            self._running = Background(lambda: self._look_twice(why, port), "two looks")

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

    def _look_twice(self, why: str, port: int) -> TwoLooks:
        return self._looker.twice(port, apart_s=self._apart_s, why=why)


@dataclass(frozen=True)
class Looker:
    """How to look at one server: who its processes are now, its environment, when it was started (wall time), and
    the folder of dumps where it was started to be asked for its stacks."""

    processes: Callable[[], Sequence[Process]]
    environ: Mapping[str, str]
    started: float
    clock: Clock
    dumps: Path | None = None

    def twice(
        self, port: int, *, apart_s: float, why: str = "", say: Callable[[str], None] = lambda words: None
    ) -> TwoLooks:
        """Look, wait until `apart_s` seconds have passed since, and look again, the second time at everything.

        What seldom changes (limits, libraries, native stacks …) is looked at once. `say` is told what is being done.
        """
        began = self.clock.monotonic()
        say("looking at its processes")
        first = self._look(port, deep=False)
        say("waiting to see what moves")
        self.clock.sleep(max(0.0, apart_s - (self.clock.monotonic() - began)))
        say("looking again, deeper")
        second = self._look(port, deep=True)
        return TwoLooks(why, first, second, compare(first, second), self.clock.monotonic() - began)

    def _look(self, port: int, *, deep: bool) -> Look:
        return evidence.look(
            self.processes(),
            clock=self.clock,
            port=port,
            deadline_s=LOOK_DEADLINE_S,
            deep=deep,
            environ=self.environ,
            started=self.started,
            dumps=self.dumps,
        )


def confirmation(difference: Difference) -> Confirmation:
    """What the difference says to liveness, which knows nothing of stacks."""
    by_change = {
        change: frozenset(one.id.pid for one in difference.processes if one.change is change) for change in Change
    }
    return Confirmation(
        still=by_change[Change.STILL], spinning=by_change[Change.SPINNING], moving=by_change[Change.MOVING]
    )
