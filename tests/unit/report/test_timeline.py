"""Lanes and series on one time axis."""

import msgspec
import pytest

from firstlight.core.graph import Strip
from firstlight.core.report import Report
from firstlight.report.timeline import (
    Axis,
    axis,
    bars,
    blocks,
    lanes,
    most_words,
    resampled,
    strip_lines,
    tops,
)


def strip(*values: float, what: str = "cpu", step_s: float = 1.0, began: float = 0.0) -> Strip:
    return Strip(source="TP0", rank=0, what=what, began=began, step_s=step_s, values=values)


def test_a_phase_that_ended_on_some_ranks_names_the_others(rich: Report) -> None:
    assert [bar.note for bar in bars(rich)] == ["", "", "", "did not end on rank 7"]


def test_lanes_are_ranks_and_the_one_to_blame_stands_first(rich: Report) -> None:
    found = lanes(rich)
    assert [lane.name for lane in found] == ["rank 7", *(f"rank {rank}" for rank in range(7))]
    assert [lane.bars[-1].stuck for lane in found] == [True, *[False] * 7]
    assert [one.what for one in found[1].strips] == ["cpu", "gpu", "io"]


def test_a_series_finds_its_rank_by_number_where_names_differ(rich: Report) -> None:
    renamed = tuple(msgspec.structs.replace(one, source=f"sched {one.rank}") for one in rich.strips)
    assert lanes(msgspec.structs.replace(rich, strips=renamed))[0].strips[0].source == "sched 7"


@pytest.mark.parametrize(
    ("series", "columns", "expected"),
    [
        (strip(1, 2, 3, 4), 4, [1, 2, 3, 4]),
        (strip(1, 2, 3, 4), 2, [1.5, 3.5]),
        (strip(1, 3), 4, [1, 3, -1, -1]),
        (strip(1, 3, step_s=2), 4, [1, 1, 3, 3]),
        (strip(1, -1, 3, 4), 4, [1, -1, 3, 4]),
        (strip(5, began=-10), 4, [-1, -1, -1, -1]),
        (strip(5, began=100), 4, [-1, -1, -1, -1]),
    ],
)
def test_a_series_is_laid_on_the_axis(series: Strip, columns: int, expected: list[float]) -> None:
    assert resampled(series, Axis(0.0, 4.0), columns) == expected


def test_nothing_little_and_unseen_look_different() -> None:
    assert blocks([-1, 0, 0.001, 0.5, 1, 9], 1.0) == " ·▁▅██"
    assert blocks([1, -1, -1], 1.0) == "█"


def test_all_lanes_share_a_scale(rich: Report) -> None:
    assert tops(lanes(rich)) == {"cpu": 1.5, "io": 2e9, "gpu": 100.0}


def test_the_highest_value_is_said_with_its_unit() -> None:
    said = [most_words(strip(1.0)), most_words(strip(2.5)), most_words(strip(-1.0))]
    assert said == ["1.0 core", "2.5 cores", "not measured"]
    assert most_words(strip(2e9, what="io")) == "2.0 GB/s"
    assert most_words(strip(37, what="gpu")) == "37 %"


def test_only_a_few_series_are_told_in_text(many: Report) -> None:
    lines = strip_lines(many, 30)
    assert lines[0].startswith("CPU rank 63")
    assert lines[-1] == "and 60 more, in the HTML report"


def test_times_that_make_no_sense_are_no_harm(rich: Report) -> None:
    odd = msgspec.structs.replace(rich, started=1e300, ended=-1e300)
    assert axis(odd).whole > 0
    assert lanes(odd)
