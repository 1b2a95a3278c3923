"""The EAGLE-3 drafter: which slots are learnt and which are guessed, for all sequences together."""

from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.embedded.kernels.native import Kernels
from firstlight.embedded.model.linear import Embedding, Weight
from firstlight.embedded.speculate.eagle_checkpoint import DraftCheckpoint
from firstlight.embedded.speculate.eagle_native import NativeNetwork
from firstlight.embedded.speculate.eagle_network import Network, Parts, Slots
from firstlight.embedded.speculate.eagle_torch import TorchNetwork
from firstlight.embedded.speculate.protocol import Drafted

ROWS_AT_ONCE = 64
"""Learnt rows that may wait before their keys are computed; a piece of a prompt has more and never waits."""


class Learnt(NamedTuple):
    """Rows of one sequence that wait, and the target's states of them (rows, A * D)."""

    sequence: Drafted
    features_TD: Tensor
    slots: Slots


class Last(NamedTuple):
    """The last slot of a sequence whose states are known, and those states, fused (H,)."""

    position: int
    state_H: Tensor


def load_eagle(
    checkpoint: DraftCheckpoint,
    dtype: torch.dtype,
    *,
    embedding: Embedding,
    head: Weight | None,
    pages: int,
    positions: int,
    kernels: Kernels | None = None,
    device: torch.device | None = None,
) -> "EagleDrafter":
    """A drafter in memory, with keys and values for as many pages as the target has.

    `embedding` and `head` are the target's; the head is None where no rank has the whole of it. Without `kernels`,
    torch computes. Raises ModelNotUsable.
    """
    parts = Parts.load(
        checkpoint, dtype, embedding=embedding, head=head, pages=pages, positions=positions, device=device
    )
    network = TorchNetwork(parts) if kernels is None else NativeNetwork(parts, kernels)
    return EagleDrafter(network, checkpoint.config.taps)


class EagleDrafter:
    """Proposes what the drafter thinks likeliest, token by token.

    Its keys and values lie in pages with the numbers of the target's, so a sequence that shares pages shares them
    too. What a slot holds depends on the token after it, hence `drops_last_page`. Guessed slots are overwritten once
    the target's own states of them are learnt.
    """

    drops_last_page = True

    def __init__(self, network: Network, taps: tuple[int, ...]) -> None:
        self.taps = taps
        self._network = network
        self._waiting: list[Learnt] = []
        self._last: dict[Drafted, Last] = {}

    @property
    def waiting_rows(self) -> int:
        """Slots whose keys are not computed yet."""
        return sum(learnt.slots.count for learnt in self._waiting)

    def learn(self, sequence: Drafted, start: int, states: dict[int, Tensor]) -> None:
        """Take the target's states of positions `start`… They are computed later, unless they are many."""
        features_TD = torch.cat([states[tap] for tap in self.taps], dim=-1)
        tokens = sequence.tokens[start + 1 : start + 1 + len(features_TD)]
        self._waiting.append(Learnt(sequence, features_TD, Slots(start, tokens, list(sequence.pages))))
        if self.waiting_rows >= ROWS_AT_ONCE:
            self._catch_up()

    def propose(self, sequences: list[Drafted], counts: list[int]) -> list[list[int]]:
        """Guess on from the last token of each sequence; nothing for one whose last states were never learnt."""
        self._catch_up()
        drafts: list[list[int]] = [[] for _ in sequences]
        going = [
            index
            for index, sequence in enumerate(sequences)
            if counts[index] and sequence in self._last and self._last[sequence].position == len(sequence.tokens) - 2
        ]
        if not going:
            return drafts
        state_BH = torch.stack([self._last[sequences[index]].state_H for index in going])
        while going:
            slots = [_next_slot(sequences[index], drafts[index]) for index in going]
            state_BH, tokens = self._network.guess(state_BH, slots)
            for index, token in zip(going, tokens, strict=True):
                drafts[index].append(token)
            staying = [at for at, index in enumerate(going) if len(drafts[index]) < counts[index]]
            if len(staying) < len(going):
                state_BH, going = state_BH[staying], [going[at] for at in staying]
        return drafts

    def forget(self, sequence: Drafted) -> None:
        """Drop what is known of a sequence; its last rows are computed first, for others may share the pages."""
        self._catch_up()
        self._last.pop(sequence, None)

    def _catch_up(self) -> None:
        """Compute the slots that wait, all at once."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        slots = [learnt.slots for learnt in waiting]
        state_TH = self._network.learn(torch.cat([learnt.features_TD for learnt in waiting]), slots)
        end = 0
        for learnt in waiting:
            end += learnt.slots.count
            position = learnt.slots.start + learnt.slots.count - 1
            self._last[learnt.sequence] = Last(position, state_TH[end - 1].clone())


def _next_slot(sequence: Drafted, drafts: list[int]) -> Slots:
    """The slot of the last token so far, which stands one position after its slot."""
    token = drafts[-1] if drafts else sequence.tokens[-1]
    return Slots(len(sequence.tokens) - 2 + len(drafts), [token], sequence.pages)
