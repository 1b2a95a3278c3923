"""The network of an EAGLE-3 drafter as two programs of C operations: one learns slots, one guesses.

Numbers between operations are float32; weights, keys and values keep their own format.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from firstlight.embedded.kernels.native import Kernels, Program
from firstlight.embedded.model.native_path import MOST_ROWS, buffer, for_kernels
from firstlight.embedded.speculate.eagle_network import Parts, Slots


class NativeNetwork:
    """See eagle_network.Network. Guesses for at most MOST_ROWS sequences at once."""

    def __init__(self, parts: Parts, kernels: Kernels) -> None:
        self._parts = parts
        self._kernels = kernels
        hidden, weights = parts.layer.hidden_size, parts.weights
        self._features = buffer(weights.fuse.shape[1])
        self._state, self._token = buffer(hidden), buffer(hidden)
        self._both = buffer(2 * hidden)
        self._qkv = buffer(weights.qkv.shape[0])
        self._scores = buffer(parts.head.shape[0])
        self._learning, self._guessing = kernels.program(), kernels.program()
        self._learning.linear(weights.fuse, self._features, self._state)
        self._add_heads(self._learning)
        self._add_heads(self._guessing)
        self._add_rest(self._guessing)

    def learn(self, features_TD: Tensor, slots: Sequence[Slots]) -> Tensor:
        fused, first = [], 0
        for block in _blocks(slots):
            count = self._take_tokens(block)
            self._features[:count] = features_TD[first : first + count]
            self._learning.run(self._kernels.rows(block))
            fused.append(self._state[:count].clone())
            first += count
        return torch.cat(fused)

    def guess(self, state_BH: Tensor, slots: Sequence[Slots]) -> tuple[Tensor, list[int]]:
        count = self._take_tokens(slots)
        self._state[:count] = state_BH
        self._guessing.run(self._kernels.rows(slots))
        best_B = torch.from_numpy(self._scores[:count].numpy().argmax(-1))  # which torch does ten times slower
        return self._state[:count].clone(), self._parts.words(best_B)

    def _take_tokens(self, slots: Sequence[Slots]) -> int:
        tokens = [token for piece in slots for token in piece.tokens]
        self._token[: len(tokens)] = self._parts.embedding.rows(torch.tensor(tokens))
        return len(tokens)

    def _add_heads(self, program: Program) -> None:
        """Norm token and state side by side, project them, write keys and values to their pages."""
        parts, weights, eps = self._parts, self._parts.weights, self._parts.layer.norm_eps
        hidden = parts.layer.hidden_size
        program.add_norm(self._token, None, weights.token_norm.float(), eps, self._both[:, :hidden])
        program.add_norm(self._state, None, weights.state_norm.float(), eps, self._both[:, hidden:])
        program.linear(weights.qkv, self._both, self._qkv)
        program.place(self._qkv, None, None, eps, *parts.rotation, parts.cache.keys[0], parts.cache.values[0])

    def _add_rest(self, program: Program) -> None:
        """Attention, MLP and scores; the state is replaced by the next one."""
        parts, weights, layer = self._parts, self._parts.weights, self._parts.layer
        attended = buffer(weights.output.shape[1])
        delta, normed = buffer(layer.hidden_size), buffer(layer.hidden_size)
        gate_up, inner = buffer(weights.gate_up.shape[0]), buffer(weights.down.shape[1])
        keys, values = parts.cache.keys[0], parts.cache.values[0]
        program.attend(self._qkv, keys, values, attended, 0, layer.head_dim**-0.5)
        program.linear(weights.output, attended, delta)
        program.add_norm(self._state, delta, weights.mlp_norm.float(), layer.norm_eps, normed)
        program.linear(weights.gate_up, normed, gate_up)
        program.swiglu(gate_up, inner)
        program.linear(weights.down, inner, delta)
        program.add_norm(self._state, delta, weights.norm.float(), layer.norm_eps, normed)
        program.linear(for_kernels(parts.head), normed, self._scores)


def _blocks(slots: Sequence[Slots]) -> list[list[Slots]]:
    """The same slots in blocks of at most MOST_ROWS."""
    blocks: list[list[Slots]] = []
    room = 0
    for piece in slots:
        first = 0
        while first < piece.count:
            if not room:
                blocks.append([])
                room = MOST_ROWS
            taken = min(room, piece.count - first)
            blocks[-1].append(piece.part(first, first + taken))
            first, room = first + taken, room - taken
    return blocks
