"""The forward pass of a few rows on the CPU, as programs of C operations: decoding, verification, short prompts.

Numbers between operations are float32; weights and the KV cache keep their own format. (Where the processor
multiplies bfloat16 in pairs, what a product with bfloat16 weights reads is rounded to it, as torch does.) Every row
is computed alike whatever other rows the pass has (see kernels/ops.c), so a token does not depend on who else is
served, and a draft is verified with the very numbers that plain decoding would have had.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.embedded.kernels.native import Kernels, Program
from firstlight.embedded.model.config import ModelConfig
from firstlight.embedded.model.kv import KvTensors
from firstlight.embedded.model.layers import rms_norm
from firstlight.embedded.model.linear import Dense, Quantised, Weight
from firstlight.embedded.model.passes import Pass
from firstlight.embedded.model.torch_path import Sum
from firstlight.embedded.model.weights import DecoderWeights

MOST_ROWS = 64
"""Rows of one pass: the buffers have so many."""


class Buffers:
    """The numbers between operations, each (MOST_ROWS, width), used anew by every layer."""

    def __init__(self, config: ModelConfig, weights: DecoderWeights) -> None:
        layer = weights.layers[0]
        self.x = buffer(config.hidden_size)
        self.delta = buffer(config.hidden_size)
        self.normed = buffer(config.hidden_size)
        self.qkv = buffer(layer.qkv.shape[0])
        self.attended = buffer(layer.output.shape[1])
        self.gate_up = buffer(layer.gate_up.shape[0])
        self.inner = buffer(layer.down.shape[1])
        self.last = buffer(config.hidden_size)
        self.picked = buffer(config.hidden_size)
        self.scores = buffer(weights.head.shape[0])


@dataclass(frozen=True)
class Stretch:
    """Operations up to a place where the ranks add up; `what` names the place and is empty at the end."""

    program: Program
    what: str


class NativePath:
    """Runs passes of at most MOST_ROWS rows."""

    def __init__(
        self,
        config: ModelConfig,
        weights: DecoderWeights,
        cache: KvTensors,
        rotation: tuple[Tensor, Tensor],
        *,
        total: Sum | None,
        kernels: Kernels,
    ) -> None:
        self._config = config
        self._weights = weights
        self._cache = cache
        self._rotation = rotation
        self._sum = total
        self._kernels = kernels
        self._buffers = Buffers(config, weights)
        self._states: dict[int, Tensor] = {}
        self._stretches: dict[tuple[int, ...], list[Stretch]] = {}
        self._scoring = kernels.program()
        self._scoring.add_norm(
            self._buffers.picked, None, weights.norm.float(), config.norm_eps, self._buffers.normed
        )
        self._scoring.linear(for_kernels(weights.head), self._buffers.normed, self._buffers.scores)

    def hidden(self, work: Pass, beat: Callable[[], None]) -> tuple[Tensor, dict[int, Tensor]]:
        """The residual stream after the last layer (T, D), and each tapped state (T, D); all float32."""
        count = len(work.tokens)
        buffers = self._buffers
        buffers.x[:count] = self._weights.embedding.rows(torch.tensor(work.tokens))
        rows = self._kernels.rows(work.spans)
        tapped = tuple(state for state in work.tapped if state <= self._config.layers)
        for stretch in self._stretches_for(tapped):
            stretch.program.run(rows)
            if stretch.what and self._sum is not None:
                buffers.delta[:count] = self._sum(buffers.delta[:count], stretch.what)
            beat()
        return buffers.last[:count].clone(), {state: self._states[state][:count].clone() for state in tapped}

    def normed(self, x_TD: Tensor) -> Tensor:
        return rms_norm(x_TD, self._weights.norm, self._config.norm_eps)

    def scores(self, x_TD: Tensor) -> Tensor:
        """Scores of this rank's part of the vocabulary (T, V/ranks), float32; overwritten by the next pass."""
        self._buffers.picked[: len(x_TD)] = x_TD
        self._scoring.run_rows(len(x_TD))
        return self._buffers.scores[: len(x_TD)]

    def _stretches_for(self, tapped: tuple[int, ...]) -> list[Stretch]:
        if tapped not in self._stretches:
            for state in tapped:
                self._states.setdefault(state, buffer(self._config.hidden_size))
            self._stretches[tapped] = self._build(tapped)
        return self._stretches[tapped]

    def _build(self, tapped: tuple[int, ...]) -> list[Stretch]:
        """One program for all layers; with several ranks, one for each half of a layer: there they add up."""
        done: list[Stretch] = []
        program = self._kernels.program()
        for index in range(self._config.layers):
            self._tap(program, index, tapped)
            self._add_attention(program, index)
            program = self._cut(done, program, f"layer {index} attention")
            self._add_mlp(program, index)
            program = self._cut(done, program, f"layer {index} mlp")
        self._tap(program, self._config.layers, tapped)
        program.copy(self._buffers.x, self._buffers.delta, self._buffers.last)
        return [*done, Stretch(program, "")]

    def _cut(self, done: list[Stretch], program: Program, what: str) -> Program:
        if self._sum is None:
            return program
        done.append(Stretch(program, what))
        return self._kernels.program()

    def _tap(self, program: Program, state: int, tapped: tuple[int, ...]) -> None:
        if state in tapped:
            program.copy(self._buffers.x, self._buffers.delta if state else None, self._states[state])

    def _add_attention(self, program: Program, index: int) -> None:
        config, buffers, layer = self._config, self._buffers, self._weights.layers[index]
        keys, values = self._cache.keys[index], self._cache.values[index]
        program.add_norm(
            buffers.x, buffers.delta if index else None, layer.input_norm.float(), config.norm_eps, buffers.normed
        )
        program.linear(for_kernels(layer.qkv), buffers.normed, buffers.qkv, _floats(layer.qkv_bias))
        program.place(
            buffers.qkv, _floats(layer.q_norm), _floats(layer.k_norm), config.norm_eps, *self._rotation, keys, values
        )
        program.attend(buffers.qkv, keys, values, buffers.attended, config.windows[index], config.head_dim**-0.5)
        program.linear(for_kernels(layer.output), buffers.attended, buffers.delta, _floats(layer.output_bias))

    def _add_mlp(self, program: Program, index: int) -> None:
        buffers, layer = self._buffers, self._weights.layers[index]
        program.add_norm(buffers.x, buffers.delta, layer.mlp_norm.float(), self._config.norm_eps, buffers.normed)
        program.linear(for_kernels(layer.gate_up), buffers.normed, buffers.gate_up, _floats(layer.gate_up_bias))
        program.swiglu(buffers.gate_up, buffers.inner)
        program.linear(for_kernels(layer.down), buffers.inner, buffers.delta, _floats(layer.down_bias))


def for_kernels(weight: Weight) -> Dense | Quantised:
    """A weight that was loaded in a layout of the C operations."""
    if not isinstance(weight, Dense | Quantised):
        raise TypeError(f"{type(weight).__name__} is a layout of torch's own, loaded where the kernels run")
    return weight


def buffer(width: int) -> Tensor:
    """Room for the numbers of one operation on each row."""
    return torch.zeros(MOST_ROWS, width)


def _floats(vector: Tensor | None) -> Tensor | None:
    return None if vector is None else vector.float()
