"""The network of an EAGLE-3 drafter in torch, in the dtype of its weights, on any device.

Source: the EAGLE-3 paper (https://arxiv.org/abs/2503.01840), and how SGLang 0.5.23 and vLLM 0.32 compute it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.embedded.model.layers import additive, attend, rms_norm, rotate
from firstlight.embedded.model.passes import PAGE
from firstlight.embedded.speculate.eagle_network import Parts, Slots


class TorchNetwork:
    """See eagle_network.Network."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._layer, self._weights = parts.layer, parts.weights
        self._dtype, self._device = parts.weights.norm.dtype, parts.weights.norm.device
        self._cos, self._sin = (part.to(self._dtype) for part in parts.rotation)

    def learn(self, features_TD: Tensor, slots: Sequence[Slots]) -> Tensor:
        state_TH = self._weights.fuse.product(features_TD.to(self._device, self._dtype))
        self._write(self._heads(state_TH, slots), slots)
        return state_TH

    def guess(self, state_BH: Tensor, slots: Sequence[Slots]) -> tuple[Tensor, list[int]]:
        heads = self._heads(state_BH, slots)
        self._write(heads, slots)
        state_BH = state_BH + self._attend(heads[:, : self._layer.heads], slots)
        gate, up = self._weights.gate_up.product(self._norm(state_BH, self._weights.mlp_norm)).chunk(2, dim=-1)
        state_BH = state_BH + self._weights.down.product(functional.silu(gate) * up)
        best_B = self._parts.head.product(self._norm(state_BH, self._weights.norm)).argmax(-1)
        return state_BH, self._parts.words(best_B)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, self._layer.norm_eps)

    def _numbers(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, device=self._device)

    def _heads(self, state_TH: Tensor, slots: Sequence[Slots]) -> Tensor:
        """Queries, keys and values (T, N + 2 K, head size), of which queries and keys are turned to their place."""
        tokens_T = self._numbers([token for piece in slots for token in piece.tokens])
        token_TH = self._norm(self._parts.embedding.rows(tokens_T).to(self._dtype), self._weights.token_norm)
        both = torch.cat((token_TH, self._norm(state_TH, self._weights.state_norm)), dim=-1)
        heads = self._weights.qkv.product(both).view(len(both), -1, self._layer.head_dim)
        position_T = self._numbers(_positions(slots))
        turned = rotate(heads[:, : -self._layer.kv_heads], self._cos[position_T], self._sin[position_T])
        return torch.cat((turned, heads[:, -self._layer.kv_heads :]), dim=1)

    def _write(self, heads: Tensor, slots: Sequence[Slots]) -> None:
        page_T = self._numbers([piece.pages[at // PAGE] for piece in slots for at in _positions([piece])])
        slot_T = self._numbers([at % PAGE for at in _positions(slots)])
        k_TKH, v_TKH = heads[:, self._layer.heads :].chunk(2, dim=1)
        self._parts.cache.write(0, page_T, slot_T, k_TKH, v_TKH)

    def _attend(self, q_BNH: Tensor, slots: Sequence[Slots]) -> Tensor:
        """Attention of each row over its sequence, up to its own slot; query heads that share keys are one query."""
        used = [piece.start // PAGE + 1 for piece in slots]
        table = [[*piece.pages[:count], *[0] * (max(used) - count)] for piece, count in zip(slots, used, strict=True)]
        k_BKSH, v_BKSH = self._parts.cache.gather(0, torch.tensor(table, device=self._device))
        position_B = self._numbers([piece.start for piece in slots])
        seen_BS = torch.arange(k_BKSH.shape[2], device=self._device) <= position_B[:, None]
        q = q_BNH.reshape(len(slots), self._layer.kv_heads, -1, self._layer.head_dim)
        out = attend(q, k_BKSH, v_BKSH, additive(seen_BS[:, None, None], 1, self._dtype))
        return self._weights.output.product(out.reshape(len(slots), -1))


def _positions(slots: Sequence[Slots]) -> list[int]:
    return [at for piece in slots for at in range(piece.start, piece.start + piece.count)]
