"""How one server is looked at: twice, some seconds apart, since "slow or stuck" is a difference, not a snapshot."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from firstlight import evidence
from firstlight.attempt.hosts_named import hosts_named
from firstlight.clock import Clock
from firstlight.core.host import Host
from firstlight.core.look import Look
from firstlight.core.process import Process
from firstlight.core.server import ServerCommand
from firstlight.diagnose import Difference, compare

LOOK_DEADLINE_S = 8.0
PAUSING_DEADLINE_S = 40.0
COVERAGE_S = 2.0


@dataclass(frozen=True)
class TwoLooks:
    """What two looks showed, why they were taken, and the machine as it was between them."""

    why: str
    first: Look
    second: Look
    host: Host
    difference: Difference
    took_s: float


@dataclass(frozen=True)
class Looker:
    """Who and what is looked at.

    `processes` gives those of the server now; `pid` is its first. `environ` is what it was started in, at `started`
    (wall time), and `dumps` the folder where it was told to write its stacks when asked. With `pausing`
    its processes may be stopped for their native stacks.
    """

    processes: Callable[[], Sequence[Process]]
    pid: int
    command: ServerCommand
    environ: Mapping[str, str]
    started: float
    clock: Clock
    dumps: Path | None = None
    pausing: bool = False

    def twice(
        self, port: int, *, apart_s: float, why: str = "", say: Callable[[str], None] = lambda words: None
    ) -> TwoLooks:
        """Look, look at the machine, wait until `apart_s` seconds have passed, and look again, at everything.

        What seldom changes (limits, libraries, native stacks …) is looked at once. `say` is told what is being done.
        """
        began = self.clock.monotonic()
        say("looking at its processes")
        first = self._look(port, deep=False)
        evidence.ask_for_flight_records(first, self.environ, self.clock)
        say("looking at the machine")
        host = self.host()
        say("waiting to see what moves")
        self.clock.sleep(max(0.0, apart_s - (self.clock.monotonic() - began)))
        say("looking again, deeper")
        second = self._look(port, deep=True)
        host = msgspec.structs.replace(host, coverage=evidence.kernels_covered(second, self.clock, COVERAGE_S))
        return TwoLooks(why, first, second, host, compare(first, second), self.clock.monotonic() - began)

    def host(self) -> Host:
        """The machine as the server finds it."""
        names = hosts_named(self.command, self.environ)
        return evidence.host(self.clock, environ=self.environ, model=self.command.model, names=names, pid=self.pid)

    def _look(self, port: int, *, deep: bool) -> Look:
        return evidence.look(
            self.processes(),
            clock=self.clock,
            port=port,
            deadline_s=PAUSING_DEADLINE_S if self.pausing and deep else LOOK_DEADLINE_S,
            deep=deep,
            environ=self.environ,
            started=self.started,
            dumps=self.dumps,
            pausing=self.pausing,
        )
