"""From scores to the tokens that may be drawn, and to one of them. V is the size of the vocabulary.

Order and meaning are those of vLLM 0.32: temperature, then `min_p`, then `top_k`, then `top_p`, each on what the one
before left, renormalised. Every filter leaves less for the next one, and none sorts the vocabulary, which alone would
take longer than all of this.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from firstlight.embedded.messages import Sampling

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

FEW = 512
"""Candidates that are sorted rather than split once more."""
BLOCK = 256
"""Weights that are added up before the draw looks at each of them."""


class Candidates(NamedTuple):
    """Tokens in ascending order and their weights: probabilities but for a common factor. No `ids` means all of V."""

    weights: Floats
    ids: Indices | None = None

    def only(self, kept: Indices) -> "Candidates":
        return Candidates(self.weights[kept], kept if self.ids is None else self.ids[kept])

    def draw(self, uniform: float) -> int:
        """The token at `uniform` (from 0 up to, not including, 1) of the cumulative distribution."""
        index = _place(self.weights, uniform)
        return index if self.ids is None else int(self.ids[index])


def candidates(scores_V: Floats, sampling: Sampling) -> Candidates:
    """What may be drawn at a temperature above zero."""
    found = Candidates(np.exp((scores_V - scores_V.max()) / np.float32(sampling.temperature)))
    if sampling.min_p > 0:
        found = found.only(np.flatnonzero(found.weights >= sampling.min_p))  # the largest weight is 1
    if 0 < sampling.top_k < len(found.weights):
        least, _ = largest(found.weights, sampling.top_k)
        found = found.only(np.flatnonzero(found.weights >= least[-1]))
    return found if sampling.top_p >= 1 else found.only(nucleus(found.weights, sampling.top_p))


def largest(scores_V: Floats, count: int) -> tuple[Floats, Indices]:
    """The `count` largest, largest first, and where they are; torch finds them three times faster than numpy."""
    best = torch.from_numpy(scores_V).topk(min(count, len(scores_V)))
    return best.values.numpy(), best.indices.numpy()


def nucleus(weights_V: Floats, top_p: float) -> Indices:
    """Where the fewest, largest weights are whose sum reaches `top_p` of all; at least one.

    Of equal weights at the border, the first ones stay.
    """
    border, needed = _border(weights_V, top_p * float(weights_V.sum()))
    kept = np.flatnonzero(weights_V >= border)
    spare = np.flatnonzero(weights_V[kept] == border)[needed:]
    return np.delete(kept, spare)


def _border(weights_V: Floats, goal: float) -> tuple[np.float32, int]:
    """The least weight that is kept, and how many of that very weight are needed to reach the sum `goal`.

    Splits at the mean and goes on with the part in which the sum passes the goal, as quickselect does, until few are
    left.
    """
    left, above = weights_V, 0.0
    while len(left) > FEW:
        likely = left >= left.mean()
        upper = left.compress(likely)
        if len(upper) in {0, len(left)}:
            break  # all alike
        within = float(upper.sum())
        if above + within >= goal:
            left = upper
        else:
            left, above = left.compress(~likely), above + within
    ordered = np.sort(left)[::-1]
    before = above + ordered.cumsum(dtype=np.float64) - ordered
    last = max(0, int((before < goal).sum()) - 1)
    border: np.float32 = ordered[last]
    return border, last - int((ordered > border).sum()) + 1


def _place(weights_V: Floats, uniform: float) -> int:
    """The first index whose cumulative weight passes `uniform` of the whole; never one without weight."""
    sums = np.add.reduceat(weights_V, np.arange(0, len(weights_V), BLOCK), dtype=np.float64).cumsum()
    point = _below(uniform * sums[-1], sums[-1])
    block = int(sums.searchsorted(point, side="right"))
    inside = weights_V[block * BLOCK : (block + 1) * BLOCK].cumsum(dtype=np.float64)
    rest = _below(point - (sums[block - 1] if block else 0.0), inside[-1])
    return block * BLOCK + int(inside.searchsorted(rest, side="right"))


def _below(point: float, end: float) -> float:
    """`point`, which rounding may have carried to the end."""
    return min(point, math.nextafter(end, 0.0))
