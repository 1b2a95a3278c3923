"""Choosing tokens: greedy, drawn, penalised; and verifying drafts without changing what comes out."""

from collections import Counter
from itertools import product

import pytest
import torch
from torch import Tensor

from firstlight.embedded.messages import Sampling
from firstlight.embedded.worker.distribution import candidates
from firstlight.embedded.worker.sampler import ScoresNotNumbers, SequenceSampler

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0])
GREEDY = Sampling(temperature=0.0)
TABLE = torch.randn(5, 5, generator=torch.Generator().manual_seed(2)) * 1.5
"""A model of five tokens: the scores behind each token."""
ONE_IN_A_THOUSAND = {3: 16.3, 4: 18.5, 24: 51.2}
"""Quantiles of chi-squared by degrees of freedom. The seeds are fixed."""


def tokens_of(sampler: SequenceSampler, logits: Tensor, drafts: list[int]) -> list[int]:
    return [chosen.token for chosen in sampler.accept(logits, drafts)]


def generate(sampler: SequenceSampler, count: int, drafts: list[int], start: int = 0) -> list[int]:
    """Tokens behind `start`, drafting the same tokens in every round."""
    tokens = [start]
    while len(tokens) <= count:
        rows = TABLE[[tokens[-1], *drafts]]
        tokens += tokens_of(sampler, rows, drafts)
    return tokens[1 : count + 1]


def probabilities(scores: Tensor, sampling: Sampling) -> Tensor:
    found = candidates(scores.numpy(), sampling)
    assert found.ids is not None
    return torch.zeros(5).scatter(
        0, torch.from_numpy(found.ids), torch.from_numpy(found.weights / found.weights.sum())
    )


def chi_squared(counts: list[int], expected: list[float]) -> float:
    return sum((seen - mean) ** 2 / mean for seen, mean in zip(counts, expected, strict=True))


def test_no_temperature_is_the_best_token() -> None:
    assert tokens_of(SequenceSampler(GREEDY), torch.tensor([[0.0, 3.0, 1.0]]), []) == [1]


def test_a_tiny_temperature_does_not_overflow() -> None:
    chosen = {
        tokens_of(SequenceSampler(Sampling(temperature=2e-5, seed=seed)), LOGITS[None], [])[0] for seed in range(5)
    }
    assert chosen == {0}


def test_drawn_tokens_follow_the_distribution() -> None:
    sampler = SequenceSampler(Sampling(temperature=1.0, seed=11))
    counts = Counter(tokens_of(sampler, LOGITS[None], [])[0] for _ in range(4000))
    expected = (torch.softmax(LOGITS, -1) * 4000).tolist()
    assert chi_squared([counts[token] for token in range(4)], expected) < ONE_IN_A_THOUSAND[3]


@pytest.mark.parametrize("drafts", [[0], [3, 3], [4, 1, 2]])
def test_pairs_of_tokens_follow_the_distribution_whatever_is_drafted(drafts: list[int]) -> None:
    sampler = SequenceSampler(Sampling(temperature=0.8, top_p=0.95, seed=5))
    pairs = Counter(tuple(generate(sampler, 2, drafts)) for _ in range(4000))
    p = torch.stack([probabilities(row, Sampling(temperature=0.8, top_p=0.95)) for row in TABLE])
    joint = {(a, b): float(p[0, a] * p[a, b]) * 4000 for a, b in product(range(5), repeat=2)}
    possible = [pair for pair, mean in joint.items() if mean > 0]
    assert set(pairs) <= set(possible)
    assert chi_squared([pairs[pair] for pair in possible], [joint[pair] for pair in possible]) < ONE_IN_A_THOUSAND[24]


def test_a_draft_is_accepted_as_often_as_it_is_likely_and_else_the_rest_is_drawn() -> None:
    sampler = SequenceSampler(Sampling(temperature=1.0, seed=3))
    rounds = [tokens_of(sampler, LOGITS.repeat(2, 1), [1]) for _ in range(6000)]
    p = torch.softmax(LOGITS, -1)
    refused = Counter(tokens[0] for tokens in rounds if len(tokens) == 1)
    accepted = sum(len(tokens) == 2 for tokens in rounds)
    counts = [accepted, *(refused[token] for token in (0, 2, 3))]
    assert chi_squared(counts, [float(p[token]) * 6000 for token in (1, 0, 2, 3)]) < ONE_IN_A_THOUSAND[3]


@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        Sampling(temperature=0.0, frequency_penalty=0.4, presence_penalty=0.3),
        Sampling(temperature=1.0, seed=9),
        Sampling(temperature=0.7, top_k=3, seed=4, presence_penalty=1.0, frequency_penalty=-0.2),
    ],
)
@pytest.mark.parametrize("drafts", [[1], [2, 0], [4, 3, 1, 0]])
def test_the_text_of_a_seed_does_not_depend_on_drafts(sampling: Sampling, drafts: list[int]) -> None:
    plain = generate(SequenceSampler(sampling), 60, [])
    assert len(set(plain)) > 1
    assert generate(SequenceSampler(sampling), 60, drafts) == plain


def test_another_seed_is_another_text() -> None:
    texts = {tuple(generate(SequenceSampler(Sampling(seed=seed)), 20, [])) for seed in (0, 1, 2, -1, -2)}
    assert len(texts) == 5


def test_penalties_count_each_generated_token() -> None:
    """0.3 once and 0.5 for every time: two times the first token cost 1.3, and the second one leads."""
    sampler = SequenceSampler(Sampling(temperature=0.0, presence_penalty=0.3, frequency_penalty=0.5))
    logits = torch.tensor([2.0, 0.9, -9.0]).repeat(4, 1)
    assert tokens_of(sampler, logits, [0, 0, 1]) == [0, 0, 1, 0]


def test_a_negative_penalty_holds_on_to_a_token() -> None:
    sampler = SequenceSampler(Sampling(temperature=0.0, frequency_penalty=-1.0))
    first = tokens_of(sampler, torch.tensor([[0.0, 1.0]]), [])
    assert first + tokens_of(sampler, torch.tensor([[0.5, 0.0]]), []) == [1, 1]


def test_greedy_drafts_hold_up_to_the_first_that_is_not_the_best() -> None:
    rows = torch.eye(4)
    assert tokens_of(SequenceSampler(GREEDY), rows, [0, 1, 2]) == [0, 1, 2, 3]
    assert tokens_of(SequenceSampler(GREEDY), rows, [0, 3, 2]) == [0, 1]
    assert tokens_of(SequenceSampler(GREEDY), rows, [2, 1, 2]) == [0]


def test_exact_ties_are_counted_and_go_to_the_lowest_number() -> None:
    rows = torch.tensor([[1.0, 5.0, 5.0], [7.0, 0.0, 7.0], [0.0, 1.0, 2.0]])
    sampler = SequenceSampler(GREEDY)
    assert tokens_of(sampler, rows, [1, 0]) == [1, 0, 2]
    assert sampler.ties == 2


def test_rows_behind_a_failed_draft_are_no_ties() -> None:
    sampler = SequenceSampler(GREEDY)
    assert tokens_of(sampler, torch.tensor([[1.0, 2.0], [3.0, 3.0]]), [0]) == [1]
    assert sampler.ties == 0


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.0, seed=1, presence_penalty=2.0)])
def test_logarithms_are_of_the_models_own_distribution(sampling: Sampling) -> None:
    told = Sampling(temperature=sampling.temperature, seed=1, presence_penalty=2.0, logprobs=3)
    rows = TABLE[[0, 2]]
    first = SequenceSampler(told).accept(rows[:1], [])[0].token
    for row, chosen in zip(rows, SequenceSampler(told).accept(rows, [first]), strict=True):
        own = row.log_softmax(-1)
        assert chosen.logprob == pytest.approx(float(own[chosen.token]), abs=1e-6)
        assert [top.token for top in chosen.top] == own.argsort(descending=True)[:3].tolist()
        assert [top.logprob for top in chosen.top] == pytest.approx(own.sort(descending=True).values[:3].tolist())


def test_logarithm_of_the_chosen_token_alone() -> None:
    chosen = SequenceSampler(Sampling(temperature=0.0, logprobs=0)).accept(LOGITS[None], [])[0]
    assert chosen.logprob == pytest.approx(float(LOGITS.log_softmax(-1)[0]))
    assert not chosen.top


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(temperature=0.0, presence_penalty=1.0)])
def test_scores_that_are_no_numbers_are_refused(bad: float, sampling: Sampling) -> None:
    with pytest.raises(ScoresNotNumbers, match="best score is"):
        SequenceSampler(sampling).accept(torch.tensor([[0.0, bad, 1.0]]), [])
