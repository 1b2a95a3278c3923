"""Random requests in a pool too small for them: every answer is what it would be alone, and no page is lost."""

from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.embedded.worker.toy import VOCABULARY, Bench, ToyTaps

from firstlight.embedded.model.passes import PAGE

PAGES = 7
BEGINNINGS = [[], [1] * 16, [1] * 33, [2] * 20, [1] * 16 + [3] * 16, [1] * 17 + [4] * 31]


class Guesser:
    """Right and wrong drafts, and fewer than were asked for, by chance."""

    def __init__(self, seed: int, right: float) -> None:
        self._random = Random(seed)
        self._right = right
        self.bench: Bench

    def __call__(self, sequence: Any, count: int) -> list[int]:
        request = self.bench.requests[sequence.request]
        done = len(sequence.tokens) - len(request.prompt)
        coming = self.bench.expected(sequence.request)[done : done + count]
        drafts = [
            token if self._random.random() < self._right else self._random.randrange(VOCABULARY) for token in coming
        ]
        return drafts[: self._random.randint(0, count)]


class Workload(RuleBasedStateMachine):
    """Requests come, are cancelled and are worked on in any order."""

    bench: Bench

    @initialize(
        seats=st.integers(1, 4),
        max_rows=st.integers(1, 8),
        right=st.none() | st.sampled_from([0.0, 0.6, 0.95]),
        seed=st.integers(0, 999),
        drafts=st.lists(st.integers(0, 5), min_size=4, max_size=4),
    )
    def begin(self, seats: int, max_rows: int, right: float | None, seed: int, drafts: list[int]) -> None:
        guesser = Guesser(seed, right) if right is not None else None
        self.bench = Bench(
            PAGES, seats=seats, max_rows=max_rows, guess=guesser, drafts=lambda batch: drafts[batch - 1]
        )
        if guesser is not None:
            guesser.bench = self.bench
        self.cancelled: set[int] = set()
        self.taps: dict[int, ToyTaps] = {}

    @rule(
        beginning=st.sampled_from(BEGINNINGS),
        end=st.lists(st.integers(1, 4), min_size=1, max_size=20),
        max_tokens=st.sampled_from([1, 2, 17, 40, 60, 90]),
        stop=st.sets(st.integers(0, VOCABULARY - 1), max_size=1),
        tapped=st.booleans(),
    )
    def submit(self, beginning: list[int], end: list[int], max_tokens: int, stop: set[int], tapped: bool) -> None:
        prompt = beginning + end
        taps = ToyTaps(2, 9) if tapped else None
        number = self.bench.submit(prompt, min(max_tokens, PAGES * PAGE + 1 - len(prompt)), stop=stop, taps=taps)
        if taps is not None:
            self.taps[number] = taps

    @rule(beginning=st.sampled_from(BEGINNINGS[1:]), answered=st.data(), max_tokens=st.integers(1, 30))
    @precondition(lambda self: any(self.bench.outputs.values()))
    def follow_up(self, beginning: list[int], answered: st.DataObject, max_tokens: int) -> None:
        """A prompt that goes on from an earlier answer, as the next turn of a talk does."""
        number = answered.draw(st.sampled_from([number for number, given in self.bench.outputs.items() if given]))
        prompt = [*self.bench.requests[number].prompt, *self.bench.answer(number), *beginning][: PAGES * PAGE - 30]
        self.bench.submit(prompt, max_tokens)

    @rule(which=st.data())
    @precondition(lambda self: len(self.bench.requests) > len(self.cancelled))
    def cancel(self, which: st.DataObject) -> None:
        number = which.draw(st.sampled_from(sorted(self.bench.requests.keys() - self.cancelled)))
        self.cancelled.add(number)
        self.bench.scheduler.cancel(number)

    @rule(steps=st.integers(1, 12))
    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.bench.step()

    @invariant()
    def no_page_is_lost(self) -> None:
        self.bench.scheduler.check()

    @invariant()
    def answers_so_far_are_right(self) -> None:
        for number in self.bench.requests:
            given = self.bench.answer(number)
            assert given == self.bench.expected(number)[: len(given)]

    def teardown(self) -> None:
        self.bench.finish()
        self.bench.assert_right(self.bench.requests.keys() - self.cancelled)
        for number in self.taps.keys() - self.cancelled:
            text = self.bench.requests[number].prompt + self.bench.answer(number)
            assert self.taps[number].rows == self.taps[number].expected(text)


Workload.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
test_any_workload = Workload.TestCase
