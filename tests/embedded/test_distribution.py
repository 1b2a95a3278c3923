"""The distribution that tokens are drawn from: temperature, min_p, top_k, top_p, in that order."""

import numpy as np
import pytest
import torch
from torch import Tensor

from firstlight.embedded.messages import Sampling
from firstlight.embedded.worker.distribution import Candidates, candidates, nucleus

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0])


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Every token's probability."""
    found = candidates(logits.numpy(), sampling)
    ids = torch.arange(len(logits)) if found.ids is None else torch.from_numpy(found.ids)
    weights = torch.from_numpy(found.weights)
    return torch.zeros_like(logits).scatter(0, ids, weights / weights.sum())


def plainly(logits: Tensor, sampling: Sampling) -> Tensor:
    """The same by sorting everything, one filter after the other."""
    p = (logits.double() / sampling.temperature).softmax(-1)
    p = torch.where(p < sampling.min_p * p.max(), 0.0, p)
    p = p / p.sum()
    if sampling.top_k:
        p = torch.where(p < p.sort(descending=True).values[sampling.top_k - 1], 0.0, p)
        p = p / p.sum()
    order = p.argsort(descending=True, stable=True)
    before = p[order].cumsum(-1) - p[order]
    kept = order[(before < sampling.top_p) & (p[order] > 0)]
    filtered = torch.zeros_like(p).scatter(0, kept, p[kept])
    return filtered / filtered.sum()


def test_temperature_alone_is_a_softmax() -> None:
    torch.testing.assert_close(distribution(LOGITS, Sampling(temperature=0.5)), torch.softmax(LOGITS / 0.5, -1))


def test_top_k_keeps_the_likeliest() -> None:
    kept = distribution(LOGITS, Sampling(top_k=2))
    torch.testing.assert_close(kept, torch.tensor([*torch.softmax(LOGITS[:2], -1), 0.0, 0.0]))


def test_min_p_is_a_part_of_the_likeliest() -> None:
    """Each step of one in the scores is a factor of e: 0.37, 0.14, 0.05 of the best."""
    assert int((distribution(LOGITS, Sampling(min_p=0.1)) > 0).sum()) == 3
    assert int((distribution(LOGITS, Sampling(min_p=1.0)) > 0).sum()) == 1


@pytest.mark.parametrize(("top_p", "kept"), [(1e-9, 1), (0.64, 1), (0.65, 2), (0.88, 2), (0.89, 3), (0.999, 4)])
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p: float, kept: int) -> None:
    probabilities = distribution(LOGITS, Sampling(top_p=top_p))
    assert int((probabilities > 0).sum()) == kept
    torch.testing.assert_close(probabilities.sum(), torch.tensor(1.0))


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_p=0.9),
        Sampling(top_p=0.3, temperature=0.6),
        Sampling(top_k=40, top_p=0.8),
        Sampling(min_p=0.02, top_k=700, top_p=0.95, temperature=1.5),
        Sampling(top_p=0.999, temperature=2.0),
    ],
)
@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0])
def test_a_large_vocabulary_is_filtered_as_by_sorting(sampling: Sampling, spread: float) -> None:
    logits = torch.randn(49152, generator=torch.Generator().manual_seed(3)) * spread
    expected = plainly(logits, sampling)
    filtered = distribution(logits, sampling)
    assert abs(int((filtered > 0).sum()) - int((expected > 0).sum())) <= 3, "float32 sums move the border by a hair"
    torch.testing.assert_close(filtered.double(), expected, atol=2e-6, rtol=1e-3)


def test_of_equally_likely_tokens_the_first_ones_stay() -> None:
    assert nucleus(np.full(4096, 1 / 4096, np.float32), 0.25).tolist() == list(range(1024))
    assert nucleus(np.array([0.2, 0.4, 0.2, 0.2], np.float32), 0.7).tolist() == [0, 1, 2]


def test_a_draw_never_hits_what_has_no_weight() -> None:
    weights = np.array([0.0, 0.5, 0.0, 0.5, 0.0], np.float32)
    assert [Candidates(weights).draw(uniform) for uniform in (0.0, 0.4999, 0.5, 1 - 2**-53)] == [1, 1, 3, 3]
    assert Candidates(weights, np.arange(10, 15)).draw(0.5) == 13


def test_a_draw_from_many_goes_by_the_cumulative_weight() -> None:
    weights = np.random.default_rng(1).random(1000, np.float32)
    cumulative = weights.cumsum(dtype=np.float64) / weights.sum(dtype=np.float64)
    for uniform in np.random.default_rng(2).random(300):
        assert Candidates(weights).draw(uniform) == int((cumulative <= uniform).sum())
