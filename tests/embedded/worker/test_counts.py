"""What the log says of speculation."""

from firstlight.embedded.worker.counts import Counts


def test_acceptance_is_told_for_the_time_since_it_was_last_told() -> None:
    counts = Counts()
    assert counts.acceptance_since(0, []) == ""
    for accepted in (0, 1, 3):
        counts.judged(3, accepted)
    told = counts.acceptance_since(0, [])
    assert told == "speculation: 3 rounds, mean acceptance length 2.33, per position 0.667, 0.333, 0.333"
    before = counts.drafts, list(counts.accepted_per_position)
    assert counts.acceptance_since(*before) == ""
    counts.judged(4, 4)
    assert "1 rounds, mean acceptance length 5.00, per position 1.000, 1.000" in counts.acceptance_since(*before)
