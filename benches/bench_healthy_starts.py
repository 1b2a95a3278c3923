"""How often a slow start that is fine is called a stall, over ways to be slow and random lengths of the pauses.

    python benches/bench_healthy_starts.py [--ways all] [--seeds 20] [--first 0] [--sleepers 8] [--burners 1]

Each start moves by one kind of signal for half a minute, with pauses of up to nine seconds, and then serves. By
default a few ways with one seed; `--ways all --seeds 20` is the whole matrix, which takes three quarters of an hour.
Several run at once, so that they also disturb each other. Printed for each way: how many starts were followed, how
many came up, how many were called slow on the way (which is fine), the looks taken, and how many were called a
stall, which must be none. Each stall is told with its reason, as soon as it is called.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from firstlight.core.events import Looked, MotionChanged, Verdict
from firstlight.core.vocabulary import Motion, Outcome
from firstlight.testing.programs.slow_start import WAYS
from firstlight.testing.running import Ended
from firstlight.testing.scenarios import BURNING_WAYS, healthy_way, run
from pairs import machine

A_FEW = ("reads_weights", "is_fed_by_a_pipe", "one_rank_is_late", "compiles_once")


@dataclass(frozen=True)
class Start:
    """One start and what was said of it."""

    way: str
    seed: int
    ended: Ended

    @property
    def alarms(self) -> list[str]:
        """Why it was called a stall, each time that it was."""
        return [event.why for event in self.ended.all(MotionChanged) if event.motion is Motion.STALLED]

    @property
    def called_slow(self) -> bool:
        return any(event.motion is Motion.SLOW for event in self.ended.all(MotionChanged))

    @property
    def looks(self) -> int:
        return len(self.ended.all(Looked))

    @property
    def came_up(self) -> bool:
        return self.ended.code == 0 and self.ended.report.outcome is Outcome.SERVING

    @property
    def outcome(self) -> str:
        """What became of it, in words."""
        verdicts = self.ended.all(Verdict)
        said = verdicts[-1].report.headline if verdicts else self.ended.stderr[-2000:]
        return f"code {self.ended.code}, {said}"


def follow(way: str, seed: int, keep: Path | None) -> Start:
    with tempfile.TemporaryDirectory(prefix="firstlight-bench-", ignore_cleanup_errors=True) as folder:
        start = Start(way, seed, run(healthy_way(way, seed), Path(folder)))
        if keep and start.alarms:
            shutil.copytree(start.ended.folder, keep / f"{way}-{seed}", dirs_exist_ok=True)
        return start


def matrix(
    ways: Sequence[str], seeds: Sequence[int], *, sleepers: int, burners: int, keep: Path | None
) -> Iterator[Start]:
    """Every way with every seed, in the order in which they end."""
    with ThreadPoolExecutor(sleepers) as sleeping, ThreadPoolExecutor(burners) as burning:
        starts: list[Future[Start]] = [
            (burning if way in BURNING_WAYS else sleeping).submit(follow, way, seed, keep)
            for seed in seeds
            for way in ways
        ]
        for start in as_completed(starts):
            yield start.result()


def told(start: Start) -> Start:
    """Say at once what must not be."""
    for why in start.alarms:
        print(f"  {start.way} --seed {start.seed} was CALLED A STALL: {why}", flush=True)
    if not start.came_up:
        print(f"  {start.way} --seed {start.seed} did NOT COME UP: {start.outcome}", flush=True)
    return start


def row(name: str, starts: Sequence[Start]) -> str:
    came_up, slow, looks, alarms = (
        sum(map(count, starts))
        for count in (
            lambda one: one.came_up,
            lambda one: one.called_slow,
            lambda one: one.looks,
            lambda one: bool(one.alarms),
        )
    )
    return f"  {name:24} {len(starts):7} {came_up:8} {slow:12} {looks:6} {alarms:15}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", default=A_FEW, choices=["all", *WAYS], metavar="WAY")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--sleepers", type=int, default=8, help="starts at once that mostly wait")
    parser.add_argument("--burners", type=int, default=1, help="starts at once that compute all the time")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="copy the runs that were called a stall to here")
    given = parser.parse_args()
    ways = tuple(WAYS) if "all" in given.ways else tuple(given.ways)
    print(__doc__)
    print(machine())
    seeds = range(given.first, given.first + given.seeds)
    numbers = {"sleepers": given.sleepers, "burners": given.burners}
    starts = [told(start) for start in matrix(ways, seeds, **numbers, keep=given.keep)]
    print(f"  {'way':24} {'starts':>7} {'came up':>8} {'called slow':>12} {'looks':>6} {'called a stall':>15}")
    for way in ways:
        print(row(way, [start for start in starts if start.way == way]))
    print(row("all", starts))
    sys.exit(any(start.alarms or not start.came_up for start in starts))


if __name__ == "__main__":
    main()
