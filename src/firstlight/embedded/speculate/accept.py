"""Which drafts the model takes: those that it would have chosen itself.

Our drafters propose one token a position, with certainty. Rejection sampling then accepts a draft x with probability
p(x), and otherwise draws from p without x, renormalised (Leviathan et al. 2023, https://arxiv.org/abs/2211.17192,
with a proposal that is a point mass). Drawing from p first and accepting x if x was drawn is the same thing: x comes
out with probability p(x), and given that something else does, it is distributed as p without x. So no token depends
on what was drafted, and a seed gives the same text with and without speculation.
"""

from collections.abc import Callable, Sequence


def accept(drafts: Sequence[int], choose: Callable[[int], int]) -> list[int]:
    """The tokens that one verification brings: the drafts that hold, and one more.

    `choose(row)` is the model's own choice behind the first `row` drafts; it is called for rows 0, 1, … in order, and
    never for a row behind a draft that failed.
    """
    tokens: list[int] = []
    for row, draft in enumerate(drafts):
        tokens.append(choose(row))
        if tokens[-1] != draft:
            return tokens
    return [*tokens, choose(len(drafts))]
