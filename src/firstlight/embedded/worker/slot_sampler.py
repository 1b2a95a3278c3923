"""From scores to the next token."""

import torch
from torch import Tensor

from firstlight.embedded.messages import Sampling

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing by them would overflow."""


class Sampler:
    """Chooses the tokens of one request; owns its random numbers, so that a seed gives the same text again."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = torch.Generator()
        if sampling.seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(sampling.seed)

    def choose(self, logits_V: Tensor) -> int:
        """The next token."""
        if self._sampling.temperature < GREEDY_BELOW:
            return int(logits_V.argmax())
        probabilities_V = distribution(logits_V, self._sampling)
        return int(torch.multinomial(probabilities_V, 1, generator=self._random))


def distribution(logits_V: Tensor, sampling: Sampling) -> Tensor:
    """The probabilities to draw from: temperature first, then `top_k`, then `top_p` of what is left."""
    logits_V = logits_V.float()
    scaled_V = (logits_V - logits_V.max()) / sampling.temperature
    if 0 < sampling.top_k < scaled_V.numel():
        least = scaled_V.topk(sampling.top_k).values[-1]
        scaled_V = scaled_V.masked_fill(scaled_V < least, -torch.inf)
    probabilities_V = scaled_V.softmax(-1)
    if sampling.top_p < 1.0:
        probabilities_V = _nucleus(probabilities_V, sampling.top_p)
    return probabilities_V


def _nucleus(probabilities_V: Tensor, top_p: float) -> Tensor:
    """Keep the likeliest tokens until their sum reaches `top_p`; always at least one."""
    ordered, order = probabilities_V.sort(descending=True)
    beyond = ordered.cumsum(-1) - ordered >= top_p
    beyond[0] = False
    kept = torch.zeros_like(probabilities_V).scatter(0, order, ordered.masked_fill(beyond, 0.0))
    return kept / kept.sum()
