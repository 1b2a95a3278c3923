"""The scheduler, case by case, on a model whose answers tell whether its pages were right."""

from typing import Any

import pytest
from tests.embedded.worker.toy import VOCABULARY, Bench, ToyTaps

from firstlight.embedded.model.passes import PAGE, Pass


def text(length: int, seed: int = 0) -> list[int]:
    return [hash((seed, position)) % 100 for position in range(length)]


def prefills(bench: Bench) -> list[tuple[int, int]]:
    """Start and end of every prefill pass."""
    return [
        (work.spans[0].start, work.spans[0].start + work.spans[0].count)
        for work in bench.model.passes
        if work.kind == "prefill"
    ]


def decodes(bench: Bench) -> list[Pass]:
    return [work for work in bench.model.passes if work.kind == "decode"]


@pytest.mark.parametrize("prompt", [1, 15, 16, 17, 255, 256, 257, 600])
def test_an_answer_is_right_whatever_the_prompts_length(prompt: int) -> None:
    bench = Bench()
    bench.submit(text(prompt), 40)
    bench.finish()
    bench.assert_right()


def test_prompts_are_computed_in_chunks_cut_at_the_same_places() -> None:
    bench = Bench()
    bench.submit(text(600), 1)
    bench.finish()
    assert prefills(bench) == [(0, 256), (256, 512), (512, 600)]
    assert [work.wanted for work in bench.model.passes] == [[], [], [87]]


def test_a_prompt_seen_before_is_not_computed_again() -> None:
    bench = Bench()
    bench.submit(text(300), 1)
    bench.finish()
    bench.submit(text(300) + text(20, seed=1), 20)
    bench.finish()
    bench.assert_right()
    assert prefills(bench)[2:] == [(288, 320)]
    assert bench.scheduler.counts.prefix_hit_tokens == 288
    assert bench.scheduler.counts.prefix_query_tokens == 620
    assert bench.scheduler.counts.prefill_tokens == 300 + 32


def test_an_answer_can_be_the_beginning_of_the_next_prompt() -> None:
    bench = Bench()
    first = bench.submit(text(10), 30)
    bench.finish()
    bench.submit(text(10) + bench.answer(first) + text(5, seed=1), 5)
    bench.finish()
    bench.assert_right()
    assert prefills(bench)[-1] == (32, 45)


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    bench = Bench()
    for _ in range(2):
        bench.submit(text(32), 4)
        bench.finish()
    bench.assert_right()
    assert prefills(bench) == [(0, 32), (16, 32)]


def test_prompts_that_come_at_once_share_what_the_first_has_computed() -> None:
    bench = Bench()
    for seed in range(3):
        bench.submit(text(64) + text(4, seed=seed + 1), 20)
    bench.finish()
    bench.assert_right()
    assert prefills(bench) == [(0, 68), (64, 68), (64, 68)]


def test_shared_pages_count_once() -> None:
    bench = Bench(pages=8)
    bench.submit(text(64), 20)
    bench.step()
    bench.submit(text(64), 20)
    bench.step()
    assert bench.scheduler.counts.running == 2
    assert bench.scheduler.counts.pages_used == 6
    bench.finish()
    bench.assert_right()


def test_requests_get_seats_in_the_order_in_which_they_came() -> None:
    bench = Bench(seats=2)
    numbers = [bench.submit(text(20, seed), 6) for seed in range(5)]
    bench.step()
    assert (bench.scheduler.counts.running, bench.scheduler.counts.waiting) == (2, 3)
    bench.finish()
    bench.assert_right()
    assert bench.started == numbers


def test_a_long_prompt_does_not_stop_the_others() -> None:
    bench = Bench()
    first = bench.submit(text(5), 10)
    bench.step()
    bench.submit(text(1000, seed=1), 2)
    for given in (2, 3, 4, 5):
        bench.step()
        assert len(bench.answer(first)) == given
    bench.finish()
    bench.assert_right()


def test_the_youngest_gives_its_pages_and_goes_on_later_where_it_was() -> None:
    bench = Bench(pages=9)
    numbers = [bench.submit(text(14, seed), 60) for seed in range(3)]
    bench.finish()
    bench.assert_right()
    assert bench.scheduler.counts.preemptions > 0
    ends = [len(bench.answer(number)) for number in numbers]
    assert ends == [60, 60, 60]
    assert bench.started == numbers


def test_who_lost_its_pages_comes_before_those_who_came_later() -> None:
    bench = Bench(pages=9, seats=3)
    for seed in range(6):
        bench.submit(text(14, seed), 60)
    ended: list[int] = []
    while bench.scheduler.busy:
        bench.step()
        ended += [
            number for number, given in bench.outputs.items() if number not in ended and given and given[-1].finish
        ]
    bench.assert_right()
    assert bench.scheduler.counts.preemptions > 0
    assert ended == sorted(ended)


def test_after_pre_emption_the_last_token_is_computed_in_a_decode_pass_as_it_would_have_been() -> None:
    bench = Bench(pages=9)
    for seed in range(3):
        bench.submit(text(14, seed), 60)
    bench.finish()
    assert bench.scheduler.counts.preemptions > 0
    assert sum(bool(work.wanted) for work in bench.model.passes if work.kind == "prefill") == 3


def test_a_newcomer_leaves_a_page_to_each_that_runs() -> None:
    bench = Bench(pages=4)
    bench.submit(text(16), 12)
    bench.submit(text(30, seed=1), 2)
    bench.submit(text(4, seed=2), 12)
    bench.step()
    assert bench.started == [1, 2]
    bench.finish()
    bench.assert_right()
    assert bench.scheduler.counts.preemptions == 0


def test_one_alone_may_fill_the_pool_to_its_last_position() -> None:
    bench = Bench(pages=4)
    bench.submit(text(30), 4 * PAGE - 30 + 1)
    bench.finish()
    bench.assert_right()


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "why"),
    [
        (30, 4 * PAGE - 30 + 2, "can never fit in a KV cache of 64 positions"),
        (65, 1, "can never fit"),
        (100_000, 1, "leave no room for an answer in 100000 positions"),
        (0, 1, "the prompt is empty"),
        (5, 0, "leave no room"),
        (5, -1, "leave no room"),
    ],
)
def test_a_request_that_could_never_end_is_refused_at_once(prompt: int, max_tokens: int, why: str) -> None:
    bench = Bench(pages=4)
    good, bad = bench.submit(text(20)), bench.submit(text(prompt), max_tokens)
    bench.step()
    (output,) = bench.outputs[bad]
    assert output.finish == "error"
    assert why in output.error
    bench.finish()
    bench.assert_right([good])


def test_a_request_alone_that_is_refused_keeps_the_scheduler_busy_until_it_is_told() -> None:
    bench = Bench(pages=4)
    bench.submit([])
    assert bench.scheduler.busy
    bench.finish()
    assert bench.outputs[1][0].error


@pytest.mark.parametrize("how", [{"seed": 666}, {"top_k": 1}, {"top_k": 4}])
def test_a_sampler_that_fails_ends_its_own_request_only(how: dict[str, int]) -> None:
    bench = Bench()
    good = bench.submit(text(20), 12)
    bad = bench.submit(text(20), 12, **how)
    bench.finish()
    bench.assert_right([good])
    last = bench.outputs[bad][-1]
    assert last.finish == "error"
    assert last.error in ("no such seed", "ArithmeticError: not a number")
    assert len(bench.outputs[bad]) == max(1, how.get("top_k", 1))


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
def test_a_cancelled_request_frees_its_pages_at_once(steps: int) -> None:
    bench = Bench(seats=1)
    cancelled, other, waiting = bench.submit(text(400), 20), bench.submit(text(30, seed=1)), bench.submit(text(9))
    for _ in range(steps):
        bench.step()
    bench.scheduler.cancel(cancelled)
    bench.scheduler.cancel(waiting)
    bench.scheduler.cancel(4711)
    bench.scheduler.check()
    assert bench.scheduler.counts.pages_used == 0
    bench.finish()
    bench.assert_right([other])
    assert bench.answer(cancelled) == bench.expected(cancelled)[: max(0, steps - 1)]
    assert bench.answer(waiting) == []


def test_an_answer_ends_with_its_stop_token() -> None:
    bench = Bench()
    for seed in range(VOCABULARY):
        bench.submit(text(20, seed), 100, stop=[seed])
    bench.finish()
    bench.assert_right()
    assert all(outputs[-1].finish == "stop" for outputs in bench.outputs.values())


def test_many_rows_are_split_into_several_passes() -> None:
    bench = Bench(max_rows=4)
    for seed in range(7):
        bench.submit(text(5, seed), 20)
    bench.finish()
    bench.assert_right()
    assert max(len(work.tokens) for work in decodes(bench)) == 4
    assert bench.scheduler.counts.decode_passes == len(decodes(bench))


def test_tapped_states_are_of_every_position_even_if_pages_are_known() -> None:
    bench = Bench()
    bench.submit(text(100), 3)
    bench.finish()
    taps = ToyTaps(3, 7)
    tapped = bench.submit(text(100), 20, taps=taps)
    plain = bench.submit(text(7), 20)
    bench.finish()
    bench.assert_right()
    assert taps.rows == taps.expected(text(100) + bench.answer(tapped))
    assert bench.model.passes[-1].tapped == ([3, 7] if len(bench.answer(tapped)) > len(bench.answer(plain)) else [])


def test_tapped_states_are_whole_after_pre_emption() -> None:
    bench, taps = Bench(pages=7), ToyTaps(1)
    bench.submit(text(14), 60)
    tapped = bench.submit(text(14, seed=1), 60, taps=taps)
    bench.finish()
    bench.assert_right()
    assert bench.scheduler.counts.preemptions > 0
    assert taps.rows == taps.expected(text(14, seed=1) + bench.answer(tapped))


def test_what_a_sampler_tells_reaches_the_output() -> None:
    bench = Bench()
    number = bench.submit(text(4), 2)
    bench.finish()
    assert [(output.logprob, output.top, output.error) for output in bench.outputs[number]] == [(None, [], "")] * 2


class Oracle:
    """Guesses what will come, `right` times in a row and then wrongly."""

    def __init__(self, right: int) -> None:
        self.right = right
        self.bench: Bench

    def __call__(self, sequence: Any, count: int) -> list[int]:
        request = self.bench.requests[sequence.request]
        done = len(sequence.tokens) - len(request.prompt)
        coming = self.bench.expected(sequence.request)[done : done + count]
        wrong = [(token + 1) % VOCABULARY for token in coming[self.right :]]
        return [*coming[: self.right], *wrong]


def drafting(right: int, **bench: Any) -> Bench:
    oracle = Oracle(right)
    oracle.bench = Bench(guess=oracle, **bench)
    return oracle.bench


@pytest.mark.parametrize("right", [0, 1, 2, 3])
def test_drafts_change_how_soon_tokens_come_but_not_which(right: int) -> None:
    bench = drafting(right)
    for seed in range(3):
        bench.submit(text(20, seed), 40)
    bench.finish()
    bench.assert_right()
    rounds = -(-39 // (right + 1))
    assert len(decodes(bench)) == rounds + 2  # the prompts take a step each, the first tokens come from them


def test_drafts_are_counted_by_position() -> None:
    bench = drafting(2)
    bench.submit(text(20), 1 + 3 * 5)
    bench.finish()
    counts = bench.scheduler.counts
    assert (counts.drafts, counts.draft_tokens, counts.accepted_tokens) == (5, 14, 10)
    assert counts.accepted_per_position == [5, 5, 0]


def test_what_a_round_brought_is_recorded() -> None:
    bench = drafting(3, drafts=lambda batch: 3 if batch == 1 else 0)
    bench.submit(text(20), 9)
    bench.submit(text(20, seed=1), 3)
    bench.finish()
    assert bench.policy is not None
    assert bench.policy.rounds == [(1, 3, 4, 1), (2, 0, 2, 1), (2, 0, 2, 1), (1, 3, 2, 1)]


def test_tokens_after_a_stop_token_inside_a_draft_are_dropped() -> None:
    for stop in range(VOCABULARY):
        bench = drafting(3)
        bench.submit(text(20), 50, stop=[stop])
        bench.finish()
        bench.assert_right()


def test_drafts_take_no_pages_from_others() -> None:
    bench = drafting(3, pages=4)
    bench.submit(text(14), 19)
    bench.submit(text(14, seed=1), 19)
    bench.finish()
    bench.assert_right()
    assert bench.scheduler.counts.preemptions == 0


def test_pages_of_drafts_that_did_not_hold_are_given_back() -> None:
    bench = drafting(0)
    bench.submit(text(29), 10)
    for _ in range(3):
        bench.step()
    assert max(len(span.pages) for work in decodes(bench) for span in work.spans) == 3
    assert bench.scheduler.counts.pages_used == 2
    bench.finish()


def test_more_drafts_than_were_asked_for_are_cut() -> None:
    bench = Bench(guess=lambda sequence, count: [0] * (count + 9))
    bench.submit(text(20), 12)
    bench.finish()
    bench.assert_right()
    assert max(len(work.tokens) for work in decodes(bench)) == 4


def test_drafts_fit_in_a_pass() -> None:
    bench = drafting(3, max_rows=3, drafts=lambda batch: 9)
    for seed in range(3):
        bench.submit(text(20, seed), 20)
    bench.finish()
    bench.assert_right()
    assert max(len(work.tokens) for work in decodes(bench)) == 3


def test_a_drafter_shares_known_pages_if_the_token_after_them_is_the_same() -> None:
    bench = drafting(1)
    bench.submit(text(64), 4)
    bench.finish()
    bench.submit([*text(64), 99], 20)
    bench.submit(text(64), 20)
    bench.submit([*text(64), 99], 20)
    bench.finish()
    bench.assert_right()
    assert prefills(bench) == [(0, 64), (48, 65), (48, 64), (64, 65)]


def test_pre_empted_sequences_are_learnt_again() -> None:
    bench = drafting(2, pages=9)
    for seed in range(3):
        bench.submit(text(14, seed), 60)
    bench.finish()
    bench.assert_right()
    assert bench.scheduler.counts.preemptions > 0
