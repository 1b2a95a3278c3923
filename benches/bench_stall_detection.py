"""How soon a stall is reported, and how many slow starts are wrongly called one, with default settings.

    python benches/bench_stall_detection.py [--full-length] [NAME …]

Each stall of tests/live runs alone. Printed for each: seconds from its last progress to the verdict, from launch to
the verdict, and the headline. Then the slow starts, with the number of false alarms. A stall that is not found, one
that is found later than 30 s after the last progress, and a false alarm are bugs.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from firstlight.core.events import MotionChanged
from firstlight.core.vocabulary import Motion, Outcome
from firstlight.testing.running import Ended
from firstlight.testing.scenarios import FULL_LENGTH, HEALTHY, STALLS, Scenario, run

PROMISED_S = 30.0


def play(scenario: Scenario) -> Ended:
    with tempfile.TemporaryDirectory(prefix="firstlight-bench-") as folder:
        return run(scenario, Path(folder))


def stall(scenario: Scenario) -> float | None:
    """Seconds from the last progress to the verdict; None if it was not found."""
    ended = play(scenario)
    if ended.code is None:
        print(f"{scenario.name:32} NOT FOUND in {scenario.wait_s:.0f} s; last event {ended.events[-1]}", flush=True)
        return None
    report = ended.report
    if report.outcome is not Outcome.STALLED or report.quiet_since is None:
        print(f"{scenario.name:32} NOT FOUND: {report.outcome}, {report.headline}", flush=True)
        return None
    took_s = report.ended - report.quiet_since
    late = " LATE" if took_s > PROMISED_S else ""
    print(
        f"{scenario.name:32} {took_s:6.1f} s {report.ended - report.started:6.1f} s{late}  {report.headline}",
        flush=True,
    )
    return took_s


def slow_start(scenario: Scenario) -> int:
    """The number of false alarms."""
    ended = play(scenario)
    alarms = [event.why for event in ended.all(MotionChanged) if event.motion is Motion.STALLED]
    report = ended.report
    print(
        f"{scenario.name:32} {report.outcome} after {report.ended - report.started:6.1f} s, alarms: {alarms}",
        flush=True,
    )
    return len(alarms) + (report.outcome is not Outcome.SERVING)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these scenarios")
    parser.add_argument("--full-length", action="store_true", help="slow starts of two minutes, not of 40 s")
    given = parser.parse_args()
    slow_starts = FULL_LENGTH if given.full_length else HEALTHY

    def wanted(scenario: Scenario) -> bool:
        return not given.names or scenario.name in given.names

    print(f"{'stall':32} since last progress, since launch", flush=True)
    found = [stall(scenario) for scenario in STALLS if wanted(scenario)]
    times = [took_s for took_s in found if took_s is not None]
    print(f"\n{'slow start':32}", flush=True)
    alarms = [slow_start(scenario) for scenario in slow_starts if wanted(scenario)]
    if times:
        late = sum(took_s > PROMISED_S for took_s in times)
        print(
            f"\n{len(times)} of {len(found)} stalls found, {late} later than {PROMISED_S:.0f} s; "
            f"median {statistics.median(times):.1f} s, worst {max(times):.1f} s"
        )
    print(f"{sum(alarms)} false alarms in {len(alarms)} slow starts")


if __name__ == "__main__":
    main()
