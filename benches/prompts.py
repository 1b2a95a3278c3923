"""What servers are asked, the same in every run."""

import itertools
import random

PROMPT = "The history of the lighthouse begins with"
ORDINARY_TOKENS = range(1000, 40_000)
"""Ids that stand for text in every vocabulary we meet; special tokens are kept at its ends."""

_numbers = itertools.count()


def fresh_prompt(tokens: int) -> list[int]:
    """Ids that no prompt began with before, so that no cache of prefixes helps."""
    return random.Random(next(_numbers)).choices(ORDINARY_TOKENS, k=tokens)
