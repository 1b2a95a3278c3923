"""What reports say, before it is laid out."""

from firstlight.core.log import PhaseSpan
from firstlight.core.report import Report
from firstlight.core.timeline import merged
from firstlight.core.vocabulary import Phase
from firstlight.report.sections import bars, groups


def span(phase: Phase, source: str, began: float, ended: float | None) -> PhaseSpan:
    return PhaseSpan(phase=phase, source=source, began=began, ended=ended)


class TestTimeline:
    def test_ranks_side_by_side_are_one_phase(self) -> None:
        spans = [span(Phase.WEIGHTS, "a", 1, 5), span(Phase.WEIGHTS, "b", 2, 7), span(Phase.KV_CACHE, "a", 5, 6)]
        assert merged(spans) == (span(Phase.WEIGHTS, "", 1, 7), span(Phase.KV_CACHE, "a", 5, 6))

    def test_one_rank_that_is_not_done_keeps_the_phase_open(self) -> None:
        assert merged([span(Phase.WEIGHTS, "a", 1, 5), span(Phase.WEIGHTS, "b", 2, None)])[0].ended is None

    def test_a_phase_that_comes_back_later_is_another(self) -> None:
        spans = [span(Phase.WEIGHTS, "a", 1, 5), span(Phase.DRAFT_INIT, "a", 5, 6), span(Phase.WEIGHTS, "a", 6, 8)]
        assert [each.phase for each in merged(spans)] == [Phase.WEIGHTS, Phase.DRAFT_INIT, Phase.WEIGHTS]


def test_bars_lie_within_the_run(stalled: Report, serving: Report, exited: Report) -> None:
    for report in (stalled, serving, exited):
        assert all(
            0 <= bar.offset <= 1 and bar.share >= 0 and bar.offset + bar.share <= 1.0001 for bar in bars(report)
        )


def test_only_a_phase_that_should_have_ended_is_stuck(stalled: Report, serving: Report) -> None:
    assert [bar.phase for bar in bars(stalled) if bar.stuck] == ["weights"]
    assert not any(bar.stuck for bar in bars(serving))


def test_ranks_that_do_the_same_at_the_same_place_are_one_group(stalled: Report) -> None:
    assert [[process.rank for process in group.processes] for group in groups(stalled)] == [[1], [0, 2, 3]]
