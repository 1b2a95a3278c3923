"""Guesses from what stood in the text before."""

import random

import pytest

from firstlight.embedded.speculate.ngram import NgramDrafter


class Text:
    request = 1
    pages: list[int] = []  # noqa: RUF012

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens


def guess(tokens: list[int], count: int) -> list[int]:
    return NgramDrafter().propose([Text(tokens)], [count])[0]


def by_searching(tokens: list[int], count: int) -> list[int]:
    """The same by trying every place."""
    for length in range(5, 1, -1):
        for start in range(len(tokens) - length - 1, -1, -1):
            if len(tokens) > length and tokens[start : start + length] == tokens[-length:]:
                followed = tokens[start + length :]
                return [followed[at % len(followed)] for at in range(count)]
    return []


@pytest.mark.parametrize(
    ("tokens", "count", "expected"),
    [
        ([1, 2, 3, 4, 9, 1, 2], 3, [3, 4, 9]),
        ([1, 2, 3, 4, 9, 1, 2], 0, []),
        ([1, 2, 3], 3, []),
        ([7, 1, 2, 5, 8, 1, 2, 6, 7, 1, 2], 1, [5]),
        ([5, 1, 2, 8, 1, 2, 6, 4, 1, 2], 1, [6]),
        ([1, 2, 1, 2], 5, [1, 2, 1, 2, 1]),
        ([4, 4, 4], 3, [4, 4, 4]),
        ([], 2, []),
    ],
)
def test_the_longest_and_then_the_latest_match_counts(tokens: list[int], count: int, expected: list[int]) -> None:
    assert guess(tokens, count) == expected


@pytest.mark.parametrize("seed", range(5))
def test_growing_texts_are_guessed_as_by_searching(seed: int) -> None:
    source = random.Random(seed)
    drafter, text, found = NgramDrafter(), Text([]), 0
    for _ in range(150):
        text.tokens = text.tokens + [source.randrange(4) for _ in range(source.randrange(1, 4))]
        drafts = drafter.propose([text], [4])[0]
        assert drafts == by_searching(text.tokens, 4)
        found += bool(drafts)
    assert found > 100


def test_sequences_do_not_mix_and_are_forgotten() -> None:
    drafter, one, other = NgramDrafter(), Text([1, 2, 3, 1, 2]), Text([1, 2, 9, 1, 2])
    assert drafter.propose([one, other], [1, 1]) == [[3], [9]]
    drafter.forget(one)
    drafter.forget(one)
    one.tokens = [5, 6]
    assert drafter.propose([one], [1]) == [[]]
