"""Who is computed next: first come, first served, as many at once as there are seats and pages of the KV cache.

A step is at most one prefill pass (one chunk of one prompt) and one decode pass for all sequences that decode, so a
long prompt holds up the others by a chunk at a time. When the pages run out, the youngest sequence loses its own and
goes back to the head of the queue. The oldest is never the victim of another, and no request is taken in that could
not end in the whole pool alone: so the oldest always gets on, and everybody becomes the oldest.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from torch import Tensor

from firstlight.embedded.errors import EngineError
from firstlight.embedded.messages import Output, Sampling, Submit
from firstlight.embedded.model.passes import PAGE, Pass, Result, Span
from firstlight.embedded.speculate.protocol import Drafter, Policy, Sampler
from firstlight.embedded.worker.counts import Counts
from firstlight.embedded.worker.pages import PagePool, PageTable, pages_for
from firstlight.embedded.worker.sequence import Sequence, Taps

NO_TOKEN = -1
"""The token of an output that only says why its request ended."""


class Scheduler:
    """Requests that wait and requests that run. Only `run` computes anything; everything here is bookkeeping."""

    def __init__(
        self,
        run: Callable[[Pass], Result],
        pool: PagePool,
        *,
        max_num_seqs: int,
        max_model_len: int,
        sampler_factory: Callable[[Sampling], Sampler],
        max_rows: int = 64,
        drafter: Drafter | None = None,
        policy: Policy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._pool = pool
        self._max_num_seqs = max_num_seqs
        self._max_model_len = max_model_len
        self._sampler_factory = sampler_factory
        self._max_rows = max_rows
        self._drafter = drafter
        self._policy = policy
        self._clock = clock
        self._passes = 0
        self._refused: list[Output] = []
        self._waiting: deque[Sequence] = deque()
        """Those that came first come first; all of them came after those that run."""
        self._running: list[Sequence] = []
        """In order of arrival."""
        self._counts = Counts(pages_total=pool.total)

    @property
    def busy(self) -> bool:
        return bool(self._running or self._waiting or self._refused)

    @property
    def counts(self) -> Counts:
        """What was done, and how things stand now."""
        self._counts.running, self._counts.waiting = len(self._running), len(self._waiting)
        self._counts.pages_used = self._pool.used
        return self._counts

    def check(self) -> None:
        """Raise AssertionError if a page is lost, or held by nobody that runs."""
        self._pool.check(sequence.pages for sequence in (*self._running, *self._waiting))

    def submit(self, request: Submit, taps: Taps | None = None) -> None:
        """Put a request into the queue. One that could never end is answered with an error by the next step."""
        try:
            max_tokens = self._max_tokens(request)
            sampler = self._sampler_factory(request.sampling)
        except Exception as error:  # noqa: BLE001 (whatever is wrong with one request must not end the others)
            self._refused.append(_failed(request.request, error))
            return
        ahead = self._drafter is not None and self._drafter.drops_last_page
        table = PageTable(self._pool, ahead=int(ahead))
        self._waiting.append(Sequence(request, max_tokens=max_tokens, sampler=sampler, table=table, taps=taps))

    def cancel(self, request: int) -> None:
        """Forget a request, and free its pages at once; unknown ones have already finished."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting.request != request)
        for sequence in [running for running in self._running if running.request == request]:
            self._leave(sequence)

    def admit(self) -> list[int]:
        """Give free seats to those that wait longest; returns the requests that got one for the first time."""
        admitted = []
        while self._waiting and len(self._running) < self._max_num_seqs and self._seat(self._waiting[0]):
            sequence = self._waiting.popleft()
            self._running.append(sequence)
            if not sequence.started:
                sequence.started = True
                admitted.append(sequence.request)
        return admitted

    def step(self) -> list[Output]:
        """One chunk of a prompt, and the next token or tokens of every sequence that decodes."""
        outputs, self._refused = self._refused, []
        decoding = [sequence for sequence in self._running if sequence.decoding]
        outputs += self._prefill()
        outputs += self._decode(decoding)
        return outputs

    # Seats and pages

    def _max_tokens(self, request: Submit) -> int:
        """How many tokens the answer may have. Raises ValueError if there is no room for it."""
        prompt = len(request.prompt)
        if not prompt:
            raise ValueError("the prompt is empty")
        max_tokens = min(request.max_tokens, self._max_model_len - prompt)
        if max_tokens < 1:
            raise ValueError(f"{prompt} prompt tokens leave no room for an answer in {self._max_model_len} positions")
        if pages_for(prompt + max_tokens - 1) > self._pool.total:
            raise ValueError(
                f"{prompt} prompt tokens and {max_tokens} tokens of answer can never fit in a KV cache of "
                f"{self._pool.total * PAGE} positions"
            )
        return max_tokens

    def _seat(self, sequence: Sequence) -> bool:
        """Give a sequence the pages for its tokens so far; one page for each that runs is left to grow into."""
        hit = self._reuse(sequence)
        if sequence.table.missing(len(sequence.tokens)) + len(self._running) > self._pool.available:
            sequence.lose_pages()
            return False
        sequence.table.reach(len(sequence.tokens))
        self._counts.prefix_query_tokens += len(sequence.tokens)
        self._counts.prefix_hit_tokens += hit
        return True

    def _reuse(self, sequence: Sequence) -> int:
        """Skip what is in known pages; returns how many positions. Tapped states must all be computed."""
        if sequence.taps is not None:
            return 0
        hit = sequence.table.reuse(sequence.tokens)
        sequence.cached += hit
        return hit

    def _leave(self, sequence: Sequence) -> None:
        """Give up seat and pages, at the end or for now."""
        self._running.remove(sequence)
        if self._drafter is not None:
            self._drafter.forget(sequence)
        sequence.lose_pages()

    def _with_a_page(self, decoding: list[Sequence]) -> Iterator[Sequence]:
        """Those that have room for one more row, the youngest sequences pre-empted for the older ones."""
        for sequence in decoding:
            while sequence in self._running and not sequence.table.reach(len(sequence.tokens)):
                youngest = self._running[-1]
                self._leave(youngest)
                self._waiting.appendleft(youngest)
                self._counts.preemptions += 1
            if sequence in self._running:
                yield sequence

    # Passes

    def _prefill(self) -> list[Output]:
        """A chunk of the oldest sequence that has not all of its tokens in the pages."""
        sequence = next((running for running in self._running if not running.decoding), None)
        if sequence is None:
            return []
        self._counts.prefix_hit_tokens += self._reuse(sequence)  # another may have computed the same since
        start, end = sequence.cached, sequence.chunk_end(self._max_rows)
        if start == end:
            return []
        last = end == len(sequence.tokens)
        kind: Literal["prefill", "decode"] = "decode" if sequence.answering else "prefill"
        result = self._pass(kind, [(sequence, sequence.tokens[start:end])], [end - start - 1] if last else [])
        self._counts.prefill_tokens += end - start
        if last:
            return self._extend(sequence, result.logits, [], result.states)
        self._advance(sequence, end - start, result.states)
        return []

    def _decode(self, decoding: list[Sequence]) -> list[Output]:
        """The next tokens of sequences that decode, in as few passes as their rows fit in."""
        ready = list(self._with_a_page(decoding))
        drafts = self._policy.draft_tokens(len(ready)) if self._drafter and self._policy and ready else 0
        drafts = min(drafts, self._max_rows - 1)
        at_once = self._max_rows // (1 + drafts)
        groups = (ready[first : first + at_once] for first in range(0, len(ready), at_once))
        return [output for group in groups for output in self._round(group, drafts)]

    def _round(self, group: list[Sequence], most_drafts: int) -> list[Output]:
        """Draft, run one decode pass, and take what holds."""
        began = self._clock()
        drafts = self._propose(group, most_drafts)
        work = [(sequence, [sequence.tokens[-1], *draft]) for sequence, draft in zip(group, drafts, strict=True)]
        rows = sum(len(tokens) for _, tokens in work)
        result = self._pass("decode", work, list(range(rows)))
        self._counts.decode_passes += 1
        outputs, first = [], 0
        for sequence, draft in zip(group, drafts, strict=True):
            own = slice(first, first + 1 + len(draft))
            states = {number: rows_RD[own] for number, rows_RD in result.states.items()}
            outputs += self._extend(sequence, result.logits[own], draft, states)
            first = own.stop
        if self._policy is not None:
            self._policy.record(len(group), most_drafts, len(outputs), self._clock() - began)
        return outputs

    def _propose(self, group: list[Sequence], most_drafts: int) -> list[list[int]]:
        """Drafts for each sequence, as far as its answer may go and pages are there without pre-empting for them."""
        if self._drafter is None or not most_drafts:
            return [[] for _ in group]
        counts = [self._lookahead(sequence, most_drafts) for sequence in group]
        proposed = self._drafter.propose(list(group), counts)
        return [list(draft[:count]) for draft, count in zip(proposed, counts, strict=True)]

    def _lookahead(self, sequence: Sequence, most_drafts: int) -> int:
        """Take pages for drafts; returns for how many."""
        count, here = min(most_drafts, sequence.left - 1), len(sequence.tokens)
        if sequence.table.reach(here + count):
            return count
        return min(count, len(sequence.pages) * PAGE - here)

    def _pass(
        self, kind: Literal["prefill", "decode"], work: list[tuple[Sequence, list[int]]], wanted: list[int]
    ) -> Result:
        """Run tokens behind what is in the pages of each sequence."""
        self._passes += 1
        tapped = set(self._drafter.taps if self._drafter is not None else ())
        tapped.update(state for sequence, _ in work if sequence.taps is not None for state in sequence.taps.states)
        spans = [
            Span(sequence.cached, len(tokens), sequence.pages[: pages_for(sequence.cached + len(tokens))])
            for sequence, tokens in work
        ]
        return self._run(
            Pass(
                number=self._passes,
                kind=kind,
                tokens=[token for _, tokens in work for token in tokens],
                spans=spans,
                wanted=wanted,
                tapped=sorted(tapped),
            )
        )

    # Results

    def _extend(
        self, sequence: Sequence, logits_RV: Tensor, drafts: list[int], states: dict[int, Tensor]
    ) -> list[Output]:
        """Choose the tokens that follow; all but the last of them are in the pages already, having been drafts."""
        try:
            chosen = sequence.sampler.accept(logits_RV, drafts)
        except Exception as error:  # noqa: BLE001 (one request's sampler must not end the others)
            self._leave(sequence)
            return [_failed(sequence.request, error)]
        if drafts:
            self._counts.judged(len(drafts), len(chosen) - 1)
        taken = sequence.extend(chosen)
        self._advance(sequence, len(sequence.tokens) - 1 - sequence.cached, states)
        outputs = [
            Output(request=sequence.request, token=choice.token, logprob=choice.logprob, top=list(choice.top))
            for choice in taken
        ]
        return [*outputs[:-1], msgspec.structs.replace(outputs[-1], finish=sequence.finish)]

    def _advance(self, sequence: Sequence, rows: int, states: dict[int, Tensor]) -> None:
        """The next `rows` positions are final: tell those who keep their states, and let others share the pages."""
        start = sequence.cached
        sequence.cached += rows
        if sequence.taps is not None:
            sequence.taps.add(start, {number: states[number][:rows] for number in sequence.taps.states})
        if self._drafter is not None:
            self._drafter.learn(sequence, start, {number: states[number][:rows] for number in self._drafter.taps})
        sequence.table.remember(sequence.tokens, sequence.cached)
        sequence.table.shrink(len(sequence.tokens))
        if sequence.finish:
            self._counts.ties += sequence.sampler.ties
            self._leave(sequence)


def _failed(request: int, error: Exception) -> Output:
    what = str(error) if isinstance(error, ValueError | EngineError) else f"{type(error).__name__}: {error}"
    return Output(request=request, token=NO_TOKEN, finish="error", error=what)
