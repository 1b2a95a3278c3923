"""Measured series: their grid, what is not measured, and how they stay small."""

import msgspec
import pytest

from firstlight.core.gap import Gap
from firstlight.core.graph import Strip
from firstlight.core.process import ProcessId, ProcessSample
from firstlight.core.view import ProcessRow
from firstlight.core.vocabulary import GapReason, Phase, Role
from firstlight.supervise.liveness.sampling import Measurement
from firstlight.supervise.strips import SERIES_MAX, VALUES_MAX, Strips

BEGAN = 1_700_000_000.0
REFUSED = Gap(what="bytes read", reason=GapReason.NO_PERMISSION)


def row(rank: int = 0, cores: float = 1.0, io: float = 0.0, role: Role = Role.WORKER) -> ProcessRow:
    return ProcessRow(
        pid=100 + rank,
        name=f"worker {rank}",
        role=role,
        label=f"TP{rank}",
        rank=rank,
        phase=Phase.WEIGHTS,
        state="R",
        cpu_percent=cores * 100,
        read_bytes_s=io,
        write_bytes_s=io / 2,
        memory_bytes=1,
    )


def measured(interval_s: float = 1.0, *, refused: int = -1) -> Measurement:
    id_ = ProcessId(pid=refused, started=1)
    sample = ProcessSample(
        id=id_,
        state="R",
        cpu_s=0,
        threads=1,
        major_faults=0,
        memory_bytes=1,
        shared_bytes=0,
        read_bytes=REFUSED,
        write_bytes=REFUSED,
        disk_read_bytes=REFUSED,
    )
    return Measurement(0.0, interval_s, {id_: sample}, {}, ())


def series(strips: Strips) -> dict[tuple[int, str], Strip]:
    return {(strip.rank, strip.what): strip for strip in strips.all}


def test_each_rank_has_its_cpu_in_cores_and_its_io_in_bytes() -> None:
    strips = Strips(BEGAN)
    for second in range(1, 4):
        strips.add([row(0, cores=0.5, io=1000), row(1, cores=2)], measured(), BEGAN + second)
    found = series(strips)
    assert found[0, "cpu"].values == (0.5, 0.5, 0.5)
    assert found[0, "io"].values == (1500, 1500, 1500)
    assert found[1, "cpu"].values == (2, 2, 2)
    assert (found[0, "cpu"].began, found[0, "cpu"].step_s) == (BEGAN, 1.0)


def test_what_was_refused_or_not_yet_there_is_not_measured() -> None:
    strips = Strips(BEGAN)
    strips.add([row(0)], measured(0), BEGAN)
    assert strips.all == ()
    strips.add([row(0)], measured(refused=100), BEGAN + 1)
    strips.add([row(0), row(1)], measured(refused=100), BEGAN + 5)
    found = series(strips)
    assert (0, "io") not in found
    assert found[0, "cpu"].values == (1, -1, -1, -1, 1)
    assert found[1, "cpu"].values == (-1, -1, -1, -1, 1)


def test_a_measurement_that_lies_across_slots_counts_in_each() -> None:
    strips = Strips(BEGAN)
    strips.add([row(cores=3)], measured(2.5), BEGAN + 2.5)
    assert series(strips)[0, "cpu"].values == (3, 3, 3)


def test_a_long_run_halves_its_resolution_and_keeps_its_mean() -> None:
    strips = Strips(BEGAN)
    for second in range(1, 1001):
        strips.add([row(cores=float(second % 2))], measured(), BEGAN + second)
    strip = series(strips)[0, "cpu"]
    assert strip.step_s == 8
    assert len(strip.values) == 125
    assert set(strip.values) == {0.5}


def test_after_a_long_sleep_there_are_still_no_more_values() -> None:
    strips = Strips(BEGAN)
    strips.add([row()], measured(), BEGAN + 1)
    strips.add([row()], measured(1e6), BEGAN + 1e6)
    strip = series(strips)[0, "cpu"]
    assert len(strip.values) <= VALUES_MAX
    assert VALUES_MAX * strip.step_s >= 1e6


def test_helpers_and_a_flood_of_processes_are_left_out() -> None:
    strips = Strips(BEGAN)
    strips.add([row(role=Role.COMPILER)], measured(), BEGAN + 1)
    assert strips.all == ()
    strips.add([row(rank) for rank in range(1000)], measured(), BEGAN + 2)
    assert len(strips.all) == SERIES_MAX


class _Card(msgspec.Struct):
    index: int
    utilisation: float | Gap
    pids: tuple[int, ...]


@pytest.mark.parametrize(
    ("card", "where"),
    [
        (_Card(3, 97.0, (100,)), ("TP0", 0)),
        (_Card(3, 97.0, ()), ("GPU 3", -1)),
        (_Card(3, 97.0, (100, 101)), ("GPU 3", -1)),
        (_Card(3, REFUSED, (100,)), None),
    ],
)
def test_a_gpu_is_its_only_ranks_or_stands_for_itself(card: _Card, where: tuple[str, int] | None) -> None:
    strips = Strips(BEGAN)
    strips.add([row(0), row(1)], measured()._replace(gpus=(card,)), BEGAN + 1)  # type: ignore[arg-type]
    found = [(strip.source, strip.rank) for strip in strips.all if strip.what == "gpu"]
    assert found == ([where] if where else [])
