"""A model without arithmetic: keys and values are digests of the text so far, read and written through pages.

A wrong page table, a page overwritten or handed out twice, or a row at a wrong position gives another token than
`continuation`, which makes the same text without pages. Scores of a row are one number; states are rows of numbers.
"""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from firstlight.embedded.messages import Output, Sampling, Submit
from firstlight.embedded.model.passes import CHUNK, PAGE, Pass, Span
from firstlight.embedded.worker.pages import PagePool
from firstlight.embedded.worker.scheduler import Scheduler

VOCABULARY = 6
START = 1


def digest(before: int, token: int) -> int:
    """The key of a position whose key before is `before`."""
    return hash((before, token))


def keys_of(tokens: Iterable[int]) -> list[int]:
    """The keys of a text, one a position."""
    keys, before = [], START
    for token in tokens:
        before = digest(before, token)
        keys.append(before)
    return keys


class ToySampler:
    """Its choice also depends on how many tokens it chose before, so it must live as long as its request."""

    ties = 0

    def __init__(self, sampling: Sampling) -> None:
        if sampling.seed == 666:
            raise ValueError("no such seed")
        self._breaks_at = sampling.top_k or None
        self._chosen = 0

    def choose(self, score: int) -> int:
        if self._chosen + 1 == self._breaks_at:
            raise ArithmeticError("not a number")
        self._chosen += 1
        return (score + self._chosen) % VOCABULARY

    def accept(self, logits_RV: Any, drafts: list[int]) -> list[Any]:
        assert len(logits_RV) == len(drafts) + 1
        tokens: list[int] = []
        for row, score in enumerate(logits_RV):
            tokens.append(self.choose(score))
            if row < len(drafts) and tokens[-1] != drafts[row]:
                break
        return [SimpleNamespace(token=token, logprob=None, top=()) for token in tokens]


def continuation(request: Submit) -> list[int]:
    """What a request must be answered, alone and without pages."""
    sampler, keys, answer = ToySampler(request.sampling), keys_of(request.prompt), []
    for _ in range(request.max_tokens):
        answer.append(sampler.choose(hash(tuple(keys))))
        keys.append(digest(keys[-1], answer[-1]))
        if answer[-1] in request.stop_tokens:
            break
    return answer


class ToyModel:
    """Runs passes, and checks that they are what a real model may be asked for."""

    def __init__(self, pages: int, max_rows: int) -> None:
        self.passes: list[Pass] = []
        self._max_rows = max_rows
        self._store: list[list[int | None]] = [[None] * PAGE for _ in range(pages)]

    def run(self, work: Pass) -> Any:
        self._check(work)
        self.passes.append(work)
        tokens, rows = iter(work.tokens), []
        for span in work.spans:
            rows += [
                self._row(span, position, next(tokens)) for position in range(span.start, span.start + span.count)
            ]
        states = {state: [(state, keys[-1]) for keys in rows] for state in work.tapped}
        return SimpleNamespace(logits=[hash(tuple(rows[row])) for row in work.wanted], states=states)

    def _row(self, span: Span, position: int, token: int) -> list[int]:
        """Write the key of one position; returns all keys up to it, as the page table has them."""
        keys = [self._store[span.pages[at // PAGE]][at % PAGE] for at in range(position)]
        assert None not in keys
        keys.append(digest(keys[-1] if keys else START, token))
        self._store[span.pages[position // PAGE]][position % PAGE] = keys[-1]
        return keys

    def _check(self, work: Pass) -> None:
        assert sum(span.count for span in work.spans) == len(work.tokens)
        assert work.number == len(self.passes) + 1
        for span in work.spans:
            assert len(span.pages) == -(-(span.start + span.count) // PAGE)
        if work.kind == "prefill":
            (span,) = work.spans
            assert span.start // CHUNK == (span.start + span.count - 1) // CHUNK
        else:
            assert len(work.tokens) <= self._max_rows
            assert work.wanted in ([], list(range(len(work.tokens))))  # none: computed again after pre-emption


class ToyTaps:
    """Keeps the states of one request by position."""

    def __init__(self, *states: int) -> None:
        self.states = states
        self.rows: dict[int, dict[int, Any]] = {}

    def add(self, start: int, states: dict[int, Any]) -> None:
        assert tuple(states) == self.states
        assert start <= len(self.rows)
        for number, rows in states.items():
            for position, row in enumerate(rows, start):
                self.rows.setdefault(position, {})[number] = row

    def expected(self, tokens: list[int]) -> dict[int, dict[int, Any]]:
        """What must have been kept of a text whose last token was never run."""
        return {
            position: {number: (number, key) for number in self.states}
            for position, key in enumerate(keys_of(tokens[:-1]))
        }


class ToyDrafter:
    """Keeps a key of every position, which depends on the token after it, through the same pages; guesses by `guess`.

    `guess(sequence, count)` are the drafts. Every proposal checks that the keys of the whole text are there.
    """

    drops_last_page = True

    def __init__(self, pages: int, guess: Callable[[Any, int], list[int]]) -> None:
        self.taps = (2, 5)
        self.known: dict[Any, int] = {}
        self._guess = guess
        self._store: list[list[Any]] = [[None] * PAGE for _ in range(pages)]

    def propose(self, sequences: list[Any], counts: list[int]) -> list[list[int]]:
        for sequence, count in zip(sequences, counts, strict=True):
            tokens, pages = sequence.tokens, sequence.pages
            keys = [self._store[pages[at // PAGE]][at % PAGE] for at in range(len(tokens) - 1)]
            assert keys == list(zip(keys_of(tokens[:-1]), tokens[1:], strict=True))
            for position in range(len(tokens) - 1, len(tokens) + count):
                self._store[pages[position // PAGE]][position % PAGE] = "a guess"
        return [self._guess(sequence, count) for sequence, count in zip(sequences, counts, strict=True)]

    def learn(self, sequence: Any, start: int, states: dict[int, Any]) -> None:
        skipped = start - self.known.get(sequence, 0)
        assert skipped >= 0
        assert skipped % PAGE == 0
        assert tuple(states) == self.taps
        assert all(len(rows) == len(states[2]) for rows in states.values())
        for position, (_, key) in enumerate(states[2], start):
            following = sequence.tokens[position + 1]
            self._store[sequence.pages[position // PAGE]][position % PAGE] = (key, following)
        self.known[sequence] = start + len(states[2])

    def forget(self, sequence: Any) -> None:
        assert len(sequence.pages) * PAGE >= self.known.pop(sequence, 0)


class ToyPolicy:
    """As many drafts as `drafts(batch)` says."""

    def __init__(self, drafts: Callable[[int], int]) -> None:
        self.draft_tokens = drafts
        self.rounds: list[tuple[int, int, int, float]] = []

    def record(self, batch: int, drafts: int, tokens: int, seconds: float) -> None:
        self.rounds.append((batch, drafts, tokens, seconds))


class Bench:
    """A scheduler with a toy model, and what became of the requests given to it."""

    def __init__(
        self,
        pages: int = 64,
        *,
        seats: int = 8,
        max_rows: int = 16,
        guess: Callable[[Any, int], list[int]] | None = None,
        drafts: Callable[[int], int] = lambda batch: 3,
    ) -> None:
        self.pool = PagePool(pages)
        self.model = ToyModel(pages, max_rows)
        self.drafter = ToyDrafter(pages, guess) if guess else None
        self.policy = ToyPolicy(drafts) if guess else None
        self.scheduler = Scheduler(
            self.model.run,
            self.pool,
            max_num_seqs=seats,
            max_model_len=100_000,
            sampler_factory=ToySampler,
            max_rows=max_rows,
            drafter=self.drafter,
            policy=self.policy,
            clock=iter(range(1_000_000)).__next__,
        )
        self.requests: dict[int, Submit] = {}
        self.outputs: dict[int, list[Output]] = {}
        self.started: list[int] = []
        self._expected: dict[int, list[int]] = {}

    def submit(
        self,
        prompt: list[int],
        max_tokens: int = 8,
        *,
        stop: Iterable[int] = (),
        taps: ToyTaps | None = None,
        **how: int,
    ) -> int:
        """Hand in a request; `how` goes into its Sampling. Returns its number."""
        number = len(self.requests) + 1
        request = Submit(
            request=number,
            prompt=prompt,
            max_tokens=max_tokens,
            stop_tokens=list(stop),
            sampling=Sampling(**how),
        )
        self.requests[number], self.outputs[number] = request, []
        self.scheduler.submit(request, taps)
        return number

    def step(self) -> None:
        """One round, with the pages checked after it."""
        self.started += self.scheduler.admit()
        self.scheduler.check()
        for output in self.scheduler.step():
            self.outputs[output.request].append(output)
        self.scheduler.check()

    def finish(self, most: int = 3000) -> None:
        """Rounds until nothing is left to do."""
        for _ in range(most):
            if not self.scheduler.busy:
                break
            self.step()
        assert not self.scheduler.busy
        assert self.pool.available == self.pool.total
        assert not (self.drafter and self.drafter.known)

    def answer(self, request: int) -> list[int]:
        """The tokens given so far."""
        return [output.token for output in self.outputs[request]]

    def expected(self, request: int) -> list[int]:
        """The whole answer that a request must get."""
        if request not in self._expected:
            self._expected[request] = continuation(self.requests[request])
        return self._expected[request]

    def assert_right(self, requests: Iterable[int] | None = None) -> None:
        """The requests (or else all) were answered to their end, as each would have been alone."""
        for request in self.requests if requests is None else requests:
            expected, outputs = self.expected(request), self.outputs[request]
            assert [output.token for output in outputs] == expected
            finish = "stop" if expected[-1] in self.requests[request].stop_tokens else "length"
            assert [output.finish for output in outputs] == [""] * (len(expected) - 1) + [finish]
