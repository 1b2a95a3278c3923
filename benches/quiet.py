"""Whether a measurement had the machine to itself: what idle servers, other programs and the hypervisor took."""

import os
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pairs import Measure
from processes import cpu_s, machine_time

RATHER_QUIET = 0.03
"""Up to so much of the machine used by others is not worth a warning."""

IDLE = 0.05
LOOK_S = 0.25
SETTLE_S = 15
"""vLLM's processes spin for a second after a request, in case there is another."""


class Measured(Protocol):
    """Something with processes that takes turns with others."""

    name: str

    @property
    def pids(self) -> set[int]: ...


class Turn(NamedTuple):
    """Shares of one turn: of one core for the busiest idle server, of all cores for the rest."""

    idle_server: float
    other_programs: float
    stolen: float


class Quiet:
    """Goes with every turn of `servers`, of which one at a time should compute."""

    def __init__(self, servers: Sequence[Measured]) -> None:
        self._servers = servers
        self._turns: list[Turn] = []
        self._load_before = os.getloadavg()[0]

    def turn(self, server: Measured, measure: Measure) -> Measure:
        """The same measurement, watched."""

        def watched() -> float:
            pids = {other.name: other.pids for other in self._servers}
            _wait_until_idle(set().union(*(those for name, those in pids.items() if name != server.name)))
            ours_before, machine_before, began = self._ours(pids), machine_time(), time.perf_counter()
            result = measure()
            lasted = time.perf_counter() - began
            spent = {name: after - ours_before[name] for name, after in self._ours(pids).items()}
            machine = machine_time()
            cores_s = lasted * (os.cpu_count() or 1)
            self._turns.append(
                Turn(
                    max((spent[name] for name in pids if name != server.name), default=0) / lasted,
                    max(0, machine.busy - machine_before.busy - sum(spent.values())) / cores_s,
                    (machine.stolen - machine_before.stolen) / cores_s,
                )
            )
            return result

        return watched

    def report(self) -> None:
        """Print the worst of the turns since the last report."""
        idle, others, stolen = (max(shares) for shares in zip(*self._turns, strict=True))
        loads = f"{self._load_before:.1f} before, {os.getloadavg()[0]:.1f} after"
        print(f"  in the worst turn idle servers {idle:.1%} of a core, other programs {others:.1%} of the machine,")
        print(f"  stolen {stolen:.1%}; load {loads} (with these servers)", end="")
        print(". THE MACHINE WAS NOT QUIET\n" if max(others, stolen) > RATHER_QUIET else "\n", flush=True)
        self._turns.clear()

    @staticmethod
    def _ours(pids: dict[str, set[int]]) -> dict[str, float]:
        """CPU seconds of each server and of this process, which asks them."""
        return {"": cpu_s({os.getpid()})} | {name: cpu_s(those) for name, those in pids.items()}


def _wait_until_idle(pids: set[int]) -> None:
    """Until they take nearly no CPU time; if they never do, the report of the turn will show it."""
    give_up = time.monotonic() + SETTLE_S
    while time.monotonic() < give_up:
        before = cpu_s(pids)
        time.sleep(LOOK_S)
        if cpu_s(pids) - before < IDLE * LOOK_S:
            return
