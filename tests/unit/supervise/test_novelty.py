"""A line that only repeats, digits aside, is silence."""

import pytest

from firstlight.core.vocabulary import Phase
from firstlight.supervise.liveness.novelty import SEEN_MAX, Novelty


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("Waiting for 1 core engine proc(s)", "Waiting for 2 core engine proc(s)"),
        ("[12:00:01] still here", "[12:00:11] still here"),
        ("Loading:  45%|████▌     | 29/64 [00:10<00:12]", "Loading:  47%|████▋     | 30/64 [00:11<00:12]"),
        ("request 5f2c9a01 waits", "request 77ab02ff waits"),
        ("⠋ loading", "⠙ loading"),
        ("waiting.", "waiting..."),
        ("poll deadbeef pending, queue ab", "poll 5f2c9a01 pending, queue bc"),
        ("request 1b2c3d4e-abcd-4fed-beef-00c0ffee0001 waits", "request 3e4f5a6b-1c2d-4e5f-8a9b-0c1d2e3f4a5b waits"),
        ("request cmpl-x7Qw waits", "request cmpl-Jk2p waits"),
        ("Waiting for rank 3", "WAITING FOR RANK 4"),
    ],
)
def test_what_differs_only_in_numbers_is_the_same(first: str, again: str) -> None:
    news = Novelty()
    assert news.is_new(Phase.WEIGHTS, first)
    assert not news.is_new(Phase.WEIGHTS, again)


def test_other_words_are_news() -> None:
    news = Novelty()
    assert news.is_new(Phase.WEIGHTS, "Loading weights took 3.1 s")
    assert news.is_new(Phase.WEIGHTS, "Memory profiling takes 3.1 s")
    assert news.is_new(Phase.WEIGHTS, "Auto-tuning kernels")
    assert news.is_new(Phase.WEIGHTS, "加载 模型")


def test_a_line_without_words_is_none() -> None:
    assert not Novelty().is_new(Phase.WEIGHTS, "=== 42 % [####      ] \x00\ufffd")


def test_each_phase_has_its_own_memory_and_keeps_it() -> None:
    news = Novelty()
    assert news.is_new(Phase.WEIGHTS, "waiting")
    assert news.is_new(Phase.WARMUP, "waiting")
    assert not news.is_new(Phase.WEIGHTS, "waiting")


def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    news = Novelty()
    words = ["".join(chr(107 + int(digit)) for digit in f"{number:06d}") for number in range(SEEN_MAX + 10)]
    assert all(news.is_new(Phase.WEIGHTS, word) for word in words)
    assert not news.is_new(Phase.WEIGHTS, words[-1])
    assert news.is_new(Phase.WEIGHTS, words[0])
