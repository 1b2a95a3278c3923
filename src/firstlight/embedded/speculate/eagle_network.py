"""What the two networks of an EAGLE-3 drafter have in common: their weights, their memory, what they are asked.

*Slot* p holds the target's states of position p and the token after it, and predicts the token after that. Guesses go
on from the drafter's own state, in slots p + 1, p + 2, …

Shapes are suffixes, here and in eagle_torch and eagle_native: T slots, B sequences, D the target's hidden size, H the
drafter's, A the states it reads, N query heads, K key-value heads, S positions of a page table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from firstlight.embedded.errors import ModelNotUsable
from firstlight.embedded.model.config import ModelConfig
from firstlight.embedded.model.kv import KvTensors
from firstlight.embedded.model.layers import rotary_table
from firstlight.embedded.model.linear import Embedding, Weight
from firstlight.embedded.speculate.eagle_checkpoint import DraftCheckpoint, DraftWeights, load_draft


@dataclass(frozen=True)
class Slots:
    """Slots of one sequence from `start` on: the token that each reads, and the sequence's page table."""

    start: int
    tokens: Sequence[int]
    pages: Sequence[int]

    @property
    def count(self) -> int:
        return len(self.tokens)

    def part(self, first: int, last: int) -> "Slots":
        return Slots(self.start + first, self.tokens[first:last], self.pages)


class Network(Protocol):
    """Runs slots: writes their keys and values to their pages, and guesses."""

    def learn(self, features_TD: Tensor, slots: Sequence[Slots]) -> Tensor:
        """Take the target's states of slots (T, A * D), side by side; returns them fused (T, H)."""
        ...

    def guess(self, state_BH: Tensor, slots: Sequence[Slots]) -> tuple[Tensor, list[int]]:
        """Run one slot of each sequence: its state for the next slot (B, H), and the token that it predicts."""
        ...


@dataclass(frozen=True)
class Parts:
    """All that a network computes with."""

    layer: ModelConfig
    weights: DraftWeights
    embedding: Embedding
    head: Weight
    cache: KvTensors
    rotation: tuple[Tensor, Tensor]
    """Cosines and sines (positions, half a head), float32."""

    @classmethod
    def load(
        cls,
        checkpoint: DraftCheckpoint,
        dtype: torch.dtype,
        *,
        embedding: Embedding,
        head: Weight | None,
        pages: int,
        positions: int,
        device: torch.device | None = None,
    ) -> "Parts":
        """`embedding` and `head` are the target's, for a drafter that brings none; the head is None where it is
        spread over ranks. Raises ModelNotUsable.
        """
        layer, weights = checkpoint.config.layer, load_draft(checkpoint, dtype, device)
        own_head = weights.head or head
        if own_head is None:
            raise ModelNotUsable(
                f"the drafter in {checkpoint.folder} has no lm_head.weight, and the model's own is spread over ranks",
                "Use a drafter with its own lm_head.weight, or one rank",
            )
        cache = KvTensors(layer, pages, dtype, device=device)
        cos, sin = rotary_table(layer, positions, torch.float32)
        rotation = (cos.to(device), sin.to(device))
        return cls(layer, weights, weights.embedding or embedding, own_head, cache, rotation)

    def words(self, best_B: Tensor) -> list[int]:
        """The target's tokens for the drafter's."""
        tokens: list[int] = (best_B if self.weights.words is None else self.weights.words[best_B]).tolist()
        return tokens
