"""Taps: the states that a request asked to see, kept as its tokens are computed.

State k is the residual stream after k layers, `hidden_states[k]` of transformers for k < n (n layers). State n is the
last one before the final norm, and n + 1 the one after it (which transformers calls `hidden_states[n]`).
"""

import torch
from torch import Tensor


class TapRecord:
    """The tapped states of one request, a row for every position whose token was run through the model."""

    def __init__(self, states: tuple[int, ...]) -> None:
        self.states = states
        self._rows: dict[int, list[Tensor]] = {state: [] for state in states}
        self._positions = 0

    def add(self, start: int, states: dict[int, Tensor]) -> None:
        """Keep the rows of positions `start`…; a position that comes again (after pre-emption) is replaced."""
        if start < self._positions:
            self._cut(start)
        for state, rows in self._rows.items():
            rows.append(states[state].clone())
        self._positions = start + len(states[self.states[0]])

    def whole(self) -> dict[int, Tensor]:
        """Each state as one tensor (positions, D), float32."""
        return {state: torch.cat(rows) if rows else torch.empty(0) for state, rows in self._rows.items()}

    def _cut(self, positions: int) -> None:
        self._rows = {state: [rows[:positions]] for state, rows in self.whole().items()}
        self._positions = positions
