"""Ranks that work together: sums, columns, passes, and an end in order."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from firstlight.embedded.worker.ranks import Ranks

Start = Callable[..., Any]


def sums(ranks: Any) -> list[dict[str, Any]]:
    ranks.idle().finish()
    assert ranks.all_end() == dict.fromkeys(range(len(ranks.pids)), 0)
    assert ranks.said == []
    told: list[dict[str, Any]] = ranks.told
    return told


@pytest.mark.parametrize("size", [2, 3])
def test_a_sum_is_the_same_bit_for_bit_on_every_rank_and_for_any_rows(start_ranks: Start, size: int) -> None:
    arguments = ("--deadline", 30, "--tell-sums", "--passes", 2, "--ranks", size)
    told = [fact for rows in (1, 4) for fact in sums(start_ranks(*arguments, "--rows", rows))]
    assert len(told) == 2 * 2 * size
    parts = [_values(rank) for rank in range(size)]
    in_order = parts[0]
    for part in parts[1:]:
        in_order = in_order + part
    assert all(fact["total"] == in_order[0].tolist() for fact in told)
    if size == 3:
        assert not torch.equal(in_order, parts[0] + (parts[1] + parts[2])), "the order makes a difference here"


def _values(rank: int) -> torch.Tensor:
    """What ranks_program has."""
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(rank)) * 10.0 ** (4 * rank)


def test_columns_come_together_on_rank_0_in_order(start_ranks: Start) -> None:
    told = sums(start_ranks("--deadline", 30, "--tell-sums", "--passes", 1, "--rows", 2))
    whole = {fact["rank"]: fact["whole"] for fact in told}
    assert whole == {0: [[0.0, 0.0, 1.0, 1.0, 2.0, 2.0]] * 2, 1: [], 2: []}


def test_one_rank_talks_to_nobody() -> None:
    alone = Ranks.alone()
    mine = torch.ones(2, 3)
    alone.begin(1, "decode")
    assert alone.sum(mine, "layer 0 mlp") is mine
    assert alone.gather_columns(mine, "scores") is mine
    alone.leave()
    assert (alone.rank, alone.size) == (0, 1)
    assert not torch.distributed.is_initialized()


def test_passes_may_have_any_numbers(start_ranks: Start) -> None:
    """Passes before the first request have negative numbers, and some ranks come to them late."""
    late = ("--deadline", 30, "--first", -2, "--passes", 3, "--late", 1)
    assert sums(start_ranks(*late)) == []
