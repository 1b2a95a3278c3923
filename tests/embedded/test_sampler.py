"""The distribution that tokens are drawn from."""

import pytest
import torch

from firstlight.embedded.messages import Sampling
from firstlight.embedded.worker.sampler import Sampler, distribution

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0])


def test_temperature_alone_is_a_softmax() -> None:
    torch.testing.assert_close(distribution(LOGITS, Sampling(temperature=0.5)), torch.softmax(LOGITS / 0.5, -1))


def test_top_k_keeps_the_likeliest() -> None:
    kept = distribution(LOGITS, Sampling(top_k=2))
    torch.testing.assert_close(kept, torch.tensor([*torch.softmax(LOGITS[:2], -1), 0.0, 0.0]))


@pytest.mark.parametrize(("top_p", "kept"), [(1e-9, 1), (0.64, 1), (0.65, 2), (0.88, 2), (0.89, 3), (0.999, 4)])
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p: float, kept: int) -> None:
    probabilities = distribution(LOGITS, Sampling(top_p=top_p))
    assert int((probabilities > 0).sum()) == kept
    torch.testing.assert_close(probabilities.sum(), torch.tensor(1.0))


def test_no_temperature_is_the_best_token() -> None:
    assert Sampler(Sampling(temperature=0.0)).choose(torch.tensor([0.0, 3.0, 1.0])) == 1


def test_a_tiny_temperature_does_not_overflow() -> None:
    tokens = {Sampler(Sampling(temperature=2e-5, seed=seed)).choose(LOGITS) for seed in range(5)}
    assert tokens == {0}


def test_drawn_tokens_follow_the_distribution() -> None:
    sampler = Sampler(Sampling(temperature=1.0, seed=11))
    counts = torch.bincount(torch.tensor([sampler.choose(LOGITS) for _ in range(4000)]), minlength=4)
    expected = torch.softmax(LOGITS, -1) * 4000
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    assert chi_squared < 16.3, "three degrees of freedom, one in a thousand (the seed is fixed)"
