"""What the front counts and times of its requests, for /metrics."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from firstlight.embedded.messages import Counters

FIRST_TOKEN_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
REQUEST_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class Histogram:
    """Counts of values at most as large as each of `bounds`, as Prometheus has them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Values between a bound and the one before it; the last count is of those above all bounds."""
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += times
        self.sum += value * times


@dataclass
class Measures:
    """All of it since the start; times in seconds."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    rejected: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    """Requests by how they ended: a finish reason, "error" or "cancelled"."""
    counters: Counters | None = None
    """What rank 0 counts, once it has told."""
    first_token: Histogram = field(default_factory=lambda: Histogram(FIRST_TOKEN_S))
    between_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
    whole_request: Histogram = field(default_factory=lambda: Histogram(REQUEST_S))

    def tokens_came(self, count: int, after_s: float, *, first: bool) -> None:
        """`count` tokens of one request came together, `after_s` after its last one, or after its start."""
        self.generation_tokens += count
        if first:
            self.first_token.observe(after_s)
        else:
            self.between_tokens.observe(after_s / count, count)

    def request_ended(self, how: str, after_s: float) -> None:
        self.ended[how] = self.ended.get(how, 0) + 1
        self.whole_request.observe(after_s)
