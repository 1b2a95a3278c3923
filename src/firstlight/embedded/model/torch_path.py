"""The forward pass in torch: prefill on the CPU, and everything where there are no C kernels or where there is a GPU.

Shapes are suffixes: T rows of the pass, B sequences, C rows of the longest of them, S positions, D hidden size,
N query heads, K key-value heads, H head size, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.embedded.model.config import ModelConfig
from firstlight.embedded.model.kv import KvTensors
from firstlight.embedded.model.layers import additive, attend, rms_norm, rotate
from firstlight.embedded.model.layout import Layout
from firstlight.embedded.model.passes import Pass
from firstlight.embedded.model.weights import DecoderWeights, LayerWeights

Sum = Callable[[Tensor, str], Tensor]
"""Adds up what the ranks computed of a layer's output; the second argument names the place."""


class TorchPath:
    """Runs passes with torch's own operations, in the model's dtype."""

    def __init__(
        self,
        config: ModelConfig,
        weights: DecoderWeights,
        cache: KvTensors,
        rotation: tuple[Tensor, Tensor],
        total: Sum | None,
    ) -> None:
        self._config = config
        self._weights = weights
        self._cache = cache
        self._cos, self._sin = rotation
        self.device = self._cos.device
        self._sum = total
        self._heads = cache.kv_heads * (config.heads // config.kv_heads)

    def hidden(self, work: Pass, beat: Callable[[], None]) -> tuple[Tensor, dict[int, Tensor]]:
        """The residual stream after the last layer (T, D), and each tapped state (T, D) in float32."""
        layout = Layout.of(work.spans, device=self.device)
        return self.states(torch.tensor(work.tokens, device=self.device), layout, tuple(work.tapped), beat)

    def states(
        self, tokens_T: Tensor, layout: Layout, tapped: tuple[int, ...], beat: Callable[[], None]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """As `hidden`, of tensors alone: nothing here looks at a number, so a CUDA graph can hold it."""
        dtype = self._weights.dtype
        rotation = self._cos[layout.position_T].to(dtype), self._sin[layout.position_T].to(dtype)
        group = self._heads // self._cache.kv_heads
        masks = {window: additive(layout.mask(window), group, dtype) for window in set(self._config.windows)}
        x_TD = self._weights.embedding.rows(tokens_T).to(dtype)
        states: dict[int, Tensor] = {}
        for index, layer in enumerate(self._weights.layers):
            if index in tapped:
                states[index] = x_TD.float()
            mask = masks[self._config.windows[index]]
            attended = self._attend(index, layer, x_TD, layout, rotation=rotation, mask=mask)
            x_TD = x_TD + self._whole(attended, f"layer {index} attention")
            x_TD = x_TD + self._whole(self._mlp(layer, x_TD), f"layer {index} mlp")
            beat()
        if self._config.layers in tapped:
            states[self._config.layers] = x_TD.float()
        return x_TD, states

    def scores(self, x_TD: Tensor) -> Tensor:
        """Scores of this rank's part of the vocabulary (T, V/ranks) after the final norm, float32."""
        return self._weights.head.product(self.normed(x_TD)).float()

    def normed(self, x_TD: Tensor) -> Tensor:
        return rms_norm(x_TD, self._weights.norm, self._config.norm_eps)

    def _whole(self, part_TD: Tensor, what: str) -> Tensor:
        """What all ranks computed together."""
        return part_TD if self._sum is None else self._sum(part_TD.float(), what).to(self._weights.dtype)

    def _mlp(self, layer: LayerWeights, x_TD: Tensor) -> Tensor:
        normed = rms_norm(x_TD, layer.mlp_norm, self._config.norm_eps)
        gate, up = _biased(layer.gate_up.product(normed), layer.gate_up_bias).chunk(2, dim=-1)
        return _biased(layer.down.product(functional.silu(gate) * up), layer.down_bias)

    def _attend(
        self,
        index: int,
        layer: LayerWeights,
        x_TD: Tensor,
        layout: Layout,
        *,
        rotation: tuple[Tensor, Tensor],
        mask: Tensor,
    ) -> Tensor:
        normed = rms_norm(x_TD, layer.input_norm, self._config.norm_eps)
        q_TNH, k_TKH, v_TKH = self._heads_of(layer, normed)
        self._cache.write(index, layout.page_T, layout.slot_T, rotate(k_TKH, *rotation), v_TKH)
        keys, values = self._cache.gather(index, layout.table_BP)
        out_TD = _attention(rotate(q_TNH, *rotation), keys, values, layout, mask)
        return _biased(layer.output.product(out_TD), layer.output_bias)

    def _heads_of(self, layer: LayerWeights, normed_TD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of every row, those families that norm their heads included."""
        qkv = _biased(layer.qkv.product(normed_TD), layer.qkv_bias)
        kv_heads, eps = self._cache.kv_heads, self._config.norm_eps
        heads = qkv.view(len(qkv), -1, self._config.head_dim)
        q_TNH, k_TKH, v_TKH = torch.split(heads, [self._heads, kv_heads, kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q_TNH, k_TKH = rms_norm(q_TNH, layer.q_norm, eps), rms_norm(k_TKH, layer.k_norm, eps)
        return q_TNH, k_TKH, v_TKH


def _attention(q_TNH: Tensor, k_BKSH: Tensor, v_BKSH: Tensor, layout: Layout, mask: Tensor) -> Tensor:
    """Attention of every row over its own sequence; returns (T, N * H).

    The query heads that share a key-value head become rows of one query, so that keys and values are never repeated.
    """
    heads, size = q_TNH.shape[1:]
    shared = k_BKSH.shape[1]
    sequences, rows = layout.rectangle
    padded = q_TNH.new_zeros(sequences * rows, heads, size)
    padded[layout.cell_T] = q_TNH
    q = padded.view(sequences, rows, shared, -1, size).permute(0, 2, 3, 1, 4)
    group = q.shape[2]
    q = q.reshape(sequences, shared, group * rows, size)
    out = attend(q, k_BKSH, v_BKSH, mask)
    out = out.view(sequences, shared, group, rows, size).permute(0, 3, 1, 2, 4)
    return out.reshape(sequences * rows, heads * size)[layout.cell_T]


def _biased(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias
