"""The choice of how many tokens to draft, on simulated machines and drafters. All of it is seeded."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from firstlight.embedded.speculate.auto import Always, Auto

COSTS = [1.0, 1.2, 1.35, 1.5]
"""What a round with 0, 1, 2, 3 drafts takes."""
DEAR = [1.0, 1.6, 2.2, 2.8]
"""The same where many sequences already use the machine up."""
USELESS, WEAK, GOOD, GREAT = [0.0] * 3, [0.1] * 3, [0.45, 0.4, 0.4], [0.8, 0.75, 0.7]
"""The chance of each draft to hold if those before it did."""


class Machine:
    """Rounds whose measured seconds are noisy; what counts in the end are the true ones."""

    def __init__(self, policy: Auto | Always, seed: int = 0, noise: float = 0.08, spikes: float = 0.03) -> None:
        self.policy = policy
        self.random = random.Random(seed)
        self.noise, self.spikes = noise, spikes
        self.rounds: Counter[int] = Counter()

    def speed(self, tokens: int, costs: list[float], chances: list[float], batch: int = 1) -> float:
        """Tokens for each sequence until there are `tokens`, over the plain rounds that the same time would hold."""
        made, seconds = 0, 0.0
        while made < tokens * batch:
            drafts = self.policy.draft_tokens(batch)
            new = sum(1 + self.held(chances[:drafts]) for _ in range(batch))
            disturbed = 5.0 if self.random.random() < self.spikes else 1.0
            measured = costs[drafts] * max(0.5, self.random.gauss(1.0, self.noise)) * disturbed
            self.policy.record(batch, drafts, new, measured)
            self.rounds[drafts] += 1
            made, seconds = made + new, seconds + costs[drafts]
        return made / batch / seconds

    def held(self, chances: list[float]) -> int:
        for position, chance in enumerate(chances):
            if self.random.random() >= chance:
                return position
        return len(chances)


def best(costs: list[float], chances: list[float]) -> float:
    """The speed of the best fixed choice."""
    speeds, each, tokens = [1.0], 1.0, 1.0
    for cost, chance in zip(costs[1:], chances, strict=True):
        each *= chance
        tokens += each
        speeds.append(tokens / cost)
    return max(speeds)


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("costs", [COSTS, DEAR])
@pytest.mark.parametrize("seed", range(4))
def test_a_useless_drafter_costs_less_than_three_percent_of_200_tokens(
    seed: int, costs: list[float], batch: int
) -> None:
    assert Machine(Auto(3), seed).speed(200, costs, USELESS, batch) > 0.97


@pytest.mark.parametrize("batch", [1, 16])
def test_in_the_long_run_it_costs_less_than_two(batch: int) -> None:
    machine = Machine(Auto(3), 1)
    machine.speed(300, COSTS, USELESS, batch)
    assert machine.speed(3000, COSTS, USELESS, batch) > 0.98


@pytest.mark.parametrize("chances", [GOOD, GREAT])
@pytest.mark.parametrize("seed", range(4))
def test_a_good_drafter_is_used(seed: int, chances: list[float]) -> None:
    machine = Machine(Auto(3), seed)
    assert machine.speed(300, COSTS, chances) > 1
    assert machine.speed(1500, COSTS, chances) > 0.92 * best(COSTS, chances)


@pytest.mark.parametrize("seed", range(3))
def test_what_pays_for_one_is_left_where_many_make_it_dear(seed: int) -> None:
    machine = Machine(Auto(3), seed)
    for _ in range(4):
        alone = machine.speed(300, COSTS, GOOD, batch=1)
        crowded = machine.speed(300, DEAR, GOOD, batch=12)
    assert alone > 1.08
    assert crowded > 0.97


@pytest.mark.parametrize("chances", [USELESS, WEAK])
def test_nothing_clearly_better_is_nothing(chances: list[float]) -> None:
    machine = Machine(Auto(3), 2)
    machine.speed(1000, COSTS, chances)
    assert machine.rounds[0] > 900


def test_a_drafter_that_gets_better_is_found_and_one_that_gets_worse_is_left() -> None:
    machine = Machine(Auto(3), 3)
    machine.speed(400, COSTS, USELESS)
    machine.speed(1500, COSTS, GREAT)
    assert machine.speed(1000, COSTS, GREAT) > 0.92 * best(COSTS, GREAT)
    machine.speed(150, COSTS, USELESS)
    assert machine.speed(1000, COSTS, USELESS) > 0.97


def test_looks_become_rarer() -> None:
    machine = Machine(Auto(3), 4, noise=0.0, spikes=0.0)
    machine.speed(500, COSTS, USELESS)
    early = machine.rounds.total() - machine.rounds[0]
    machine.rounds.clear()
    machine.speed(5000, COSTS, USELESS)
    assert 0 < machine.rounds.total() - machine.rounds[0] < 3 * early


@pytest.mark.parametrize(("most", "asked"), [(0, {0}), (1, {0, 1}), (2, {0, 1, 2}), (7, {0, 1, 2, 3, 7})])
def test_only_a_few_numbers_are_tried(most: int, asked: set[int]) -> None:
    machine = Machine(Auto(most), 5)
    machine.speed(400, [1 + 0.01 * drafts for drafts in range(8)], [0.9] * 7)
    assert set(machine.rounds) == asked


def test_rounds_in_groups_belong_to_the_load_that_was_asked_for() -> None:
    """With drafts the scheduler may split many sequences into several passes."""
    policy = Auto(3)
    for _ in range(200):
        drafts = policy.draft_tokens(40)
        for group in (40,) if not drafts else (16, 16, 8):
            policy.record(group, drafts, group, (1 + 0.2 * drafts) * group)
    assert policy.draft_tokens(40) == 0
    assert policy.draft_tokens(33) == 0


def test_rounds_without_time_or_tokens_are_not_judged() -> None:
    policy = Auto(2)
    assert policy.draft_tokens(1) == 0
    policy.record(1, 0, 1, 0.0)
    policy.record(0, 0, 0, 1.0)
    assert policy.draft_tokens(1) == 0


@pytest.mark.parametrize("make", [lambda: Always(3), lambda: Always(0)])
def test_always_is_always(make: Callable[[], Always]) -> None:
    policy = make()
    asked = policy.draft_tokens(1)
    policy.record(1, asked, 1, 100.0)
    assert policy.draft_tokens(64) == asked
