"""The EAGLE-3 drafter: which slots are learnt and which are guessed, for all sequences together."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.embedded.kernels.native import Kernels
from firstlight.embedded.model.linear import Embedding, Weight
from firstlight.embedded.model.passes import PAGE
from firstlight.embedded.speculate.eagle_checkpoint import DraftCheckpoint
from firstlight.embedded.speculate.eagle_native import NativeNetwork
from firstlight.embedded.speculate.eagle_network import Network, Parts, Slots
from firstlight.embedded.speculate.eagle_pages import LearntPages
from firstlight.embedded.speculate.eagle_torch import TorchNetwork
from firstlight.embedded.speculate.protocol import Drafted

A_PIECE = 64
"""Rows of a prompt that are computed at once; the few rows of a round wait until a guess is asked for."""
MOST_WAITING = 4096
"""Rows that may wait, of all sequences together; at 576 numbers for each of three states they are 28 MB."""
IDLE_AFTER = 256
"""Pieces learnt without a guess being asked for, after which speculation is taken to be off."""


class Piece(NamedTuple):
    """Slots that wait, and the target's states of them, side by side (rows, A * D)."""

    slots: Slots
    features_TD: Tensor


@dataclass
class Progress:
    """How far the drafter is with one sequence."""

    end: int = 0
    """Positions whose slots are computed."""
    state_H: Tensor | None = None
    """The fused states of the last of them."""
    waiting: list[Piece] = field(default_factory=list)
    lost: bool = False
    """Whether some of its slots will never be computed; then nothing is guessed for it."""

    @property
    def rows(self) -> int:
        return sum(piece.slots.count for piece in self.waiting)


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
    return EagleDrafter(network, checkpoint.config.taps, pages)


class EagleDrafter:
    """Proposes what the drafter thinks likeliest, token by token.

    Its keys and values lie in pages with the numbers of the target's, so a sequence that shares pages shares them
    too. What a slot holds depends on the token after it, hence `drops_last_page`. Guessed slots are overwritten once
    the target's own states of them are learnt.

    States are kept until a guess is asked for, so that they cost next to nothing where speculation is off. Where too
    many would have to be kept, or nobody was there to compute them, the sequence goes on without guesses.
    """

    drops_last_page = True

    def __init__(self, network: Network, taps: tuple[int, ...], pages: int, most_waiting: int = MOST_WAITING) -> None:
        self.taps = taps
        self._network = network
        self._pages = LearntPages(pages)
        self._most_waiting = most_waiting
        self._sequences: dict[Drafted, Progress] = {}
        self._waiting_rows = 0
        self._since_a_guess = 0

    def learn(self, sequence: Drafted, start: int, states: dict[int, Tensor]) -> None:
        """Keep a copy of the target's states of positions `start`…"""
        count = len(states[self.taps[0]])
        slots = Slots(start, sequence.tokens[start + 1 : start + 1 + count], list(sequence.pages))
        self._pages.renew(slots)
        self._since_a_guess += 1
        progress = self._sequences.setdefault(sequence, Progress())
        if progress.lost:
            return
        progress.waiting.append(Piece(slots, torch.cat([states[tap] for tap in self.taps], dim=-1)))
        self._waiting_rows += count
        if count >= A_PIECE and not self._idle:
            self._catch_up()
        elif self._waiting_rows > self._most_waiting:
            self._lose(max(self._sequences.values(), key=lambda other: other.rows))

    def propose(self, sequences: list[Drafted], counts: list[int]) -> list[list[int]]:
        """Guess on from the last token of each sequence; nothing for one of which some states were never learnt."""
        self._since_a_guess = 0
        self._catch_up()
        drafts: list[list[int]] = [[] for _ in sequences]
        going, states = [], []
        for index, (sequence, count) in enumerate(zip(sequences, counts, strict=True)):
            if count and (state_H := self._last_state(sequence)) is not None:
                going.append(index)
                states.append(state_H)
        while going:
            slots = [_next_slot(sequences[index], drafts[index]) for index in going]
            state_BH, tokens = self._network.guess(torch.stack(states), slots)
            for index, token in zip(going, tokens, strict=True):
                drafts[index].append(token)
            staying = [at for at, index in enumerate(going) if len(drafts[index]) < counts[index]]
            going, states = [going[at] for at in staying], [state_BH[at] for at in staying]
        return drafts

    def forget(self, sequence: Drafted) -> None:
        """Drop what is known of a sequence. Its last rows are computed first, for others may share the pages."""
        if not self._idle:
            self._catch_up()
        if progress := self._sequences.pop(sequence, None):
            self._waiting_rows -= progress.rows

    @property
    def _idle(self) -> bool:
        return self._since_a_guess > IDLE_AFTER

    def _last_state(self, sequence: Drafted) -> Tensor | None:
        """The states of the slot before the last token, if they and all before them are known."""
        progress = self._sequences.get(sequence)
        if progress is None or progress.lost or progress.end != len(sequence.tokens) - 1:
            return None
        return progress.state_H

    def _lose(self, progress: Progress) -> None:
        self._waiting_rows -= progress.rows
        progress.lost, progress.waiting, progress.state_H = True, [], None

    def _catch_up(self) -> None:
        """Compute all slots that wait."""
        waiting = [(progress, piece) for progress in self._sequences.values() for piece in progress.waiting]
        if not waiting:
            return
        features_TD = torch.cat([piece.features_TD for _, piece in waiting])
        state_TH = self._network.learn(features_TD, [piece.slots for _, piece in waiting])
        for _, piece in waiting:
            self._pages.complete(piece.slots)
        last = -1
        for progress, piece in waiting:
            last += piece.slots.count
            self._advance(progress, piece.slots, state_TH[last].clone())
        self._waiting_rows = 0

    def _advance(self, progress: Progress, slots: Slots, state_H: Tensor) -> None:
        """Note that slots are computed. Those that were skipped lie in shared pages, and should be known."""
        skipped = slots.pages[progress.end // PAGE : slots.start // PAGE]
        progress.lost |= not self._pages.whole(skipped)
        progress.end, progress.state_H, progress.waiting = slots.start + slots.count, state_H, []


def _next_slot(sequence: Drafted, drafts: list[int]) -> Slots:
    """The slot of the last token so far, which stands one position after its slot."""
    token = drafts[-1] if drafts else sequence.tokens[-1]
    return Slots(len(sequence.tokens) - 2 + len(drafts), [token], sequence.pages)
