"""What servers are asked, the same in every run."""

import itertools
import random

QUESTIONS = (
    "The history of the lighthouse begins with",
    "To bake a loaf of bread at home, first",
    "Here is a list of the planets, from the sun outwards:",
    "def is_prime(number):",
    "Dear neighbour, I am writing to you about the noise",
    "The difference between weather and climate is",
    "Once upon a time, in a village by the sea, there lived",
    "Question: Why is the sky blue?\nAnswer:",
)
PROMPT = QUESTIONS[0]

ORDINARY_TOKENS = range(1000, 40_000)
"""Ids that stand for text in every vocabulary we meet; special tokens are kept at its ends."""

_numbers = itertools.count()


def fresh_prompt(tokens: int) -> list[int]:
    """Ids that no prompt began with before, so that no cache of prefixes helps."""
    return random.Random(next(_numbers)).choices(ORDINARY_TOKENS, k=tokens)
