"""A Llama-family decoder: plain tensors, one forward pass. Shape suffixes as in `layers`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.embedded.model.config import ModelConfig
from firstlight.embedded.model.layers import attention, causal_mask, gated_mlp, rms_norm, rotary_table, rotate
from firstlight.embedded.worker.kv_cache import KvSlot


class Place(NamedTuple):
    """Where the tokens of a call stand, the same for every layer."""

    slot: KvSlot
    start: int
    rotation: tuple[Tensor, Tensor]
    """Cosines and sines, each of shape (T, R)."""
    mask: Tensor | None


@dataclass(frozen=True)
class Layer:
    """The weights of one layer; projections that read the same input are stacked."""

    input_norm: Tensor
    qkv: Tensor
    output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Model:
    """Weights (uninitialised until `weights.load` fills them) and the forward pass."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, positions: int) -> None:
        self.config = config
        self.dtype = dtype
        hidden, vocab = config.hidden_size, config.vocab_size
        self.embedding = torch.empty(vocab, hidden, dtype=dtype)
        self.layers = [_empty_layer(config, dtype) for _ in range(config.layers)]
        self.norm = torch.empty(hidden, dtype=dtype)
        self.head = self.embedding if config.tied else torch.empty(vocab, hidden, dtype=dtype)
        self._cos, self._sin = rotary_table(config, positions, dtype)

    def destinations(self) -> dict[str, Tensor]:
        """Where each stored tensor belongs, by its name in the checkpoint: views into the stacked weights."""
        places = {"model.embed_tokens.weight": self.embedding, "model.norm.weight": self.norm}
        if not self.config.tied:
            places["lm_head.weight"] = self.head
        for index, layer in enumerate(self.layers):
            for name, place in _places(self.config, layer).items():
                places[f"model.layers.{index}.{name}.weight"] = place
        return places

    def forward(self, tokens_T: Tensor, slot: KvSlot, start: int, beat: Callable[[], None]) -> Tensor:
        """Hidden states (T, D) after the final norm, of tokens at positions `start`...; their keys go to `slot`.

        `beat` is called after every layer: the sign of life of the thread that works.
        """
        place = self._place(tokens_T.shape[0], slot, start)
        x_TD = functional.embedding(tokens_T, self.embedding)
        for index, layer in enumerate(self.layers):
            x_TD = x_TD + self._attend(index, x_TD, place)
            normed = rms_norm(x_TD, layer.mlp_norm, self.config.norm_eps)
            x_TD = x_TD + gated_mlp(normed, layer.gate_up, layer.down)
            beat()
        return rms_norm(x_TD, self.norm, self.config.norm_eps)

    def logits(self, hidden_TD: Tensor) -> Tensor:
        """Scores (T, V) of the token after each state."""
        return functional.linear(hidden_TD, self.head)

    def _place(self, tokens: int, slot: KvSlot, start: int) -> Place:
        end = start + tokens
        mask = causal_mask(tokens, end, self.config.heads // self.config.kv_heads)
        return Place(slot, start, (self._cos[start:end], self._sin[start:end]), mask)

    def _attend(self, index: int, x_TD: Tensor, place: Place) -> Tensor:
        config, layer = self.config, self.layers[index]
        normed = rms_norm(x_TD, layer.input_norm, config.norm_eps)
        heads = functional.linear(normed, layer.qkv).view(-1, config.heads + 2 * config.kv_heads, config.head_dim)
        turned = rotate(heads[:, : -config.kv_heads], *place.rotation)
        q_TNH, k_TKH, v_TKH = turned[:, : config.heads], turned[:, config.heads :], heads[:, -config.kv_heads :]
        keys, values = place.slot.write(index, place.start, k_TKH, v_TKH)
        return functional.linear(attention(q_TNH, keys, values, place.mask), layer.output)


def _empty_layer(config: ModelConfig, dtype: torch.dtype) -> Layer:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    return Layer(
        input_norm=torch.empty(hidden, dtype=dtype),
        qkv=torch.empty(queries + 2 * keys, hidden, dtype=dtype),
        output=torch.empty(hidden, queries, dtype=dtype),
        mlp_norm=torch.empty(hidden, dtype=dtype),
        gate_up=torch.empty(2 * inner, hidden, dtype=dtype),
        down=torch.empty(hidden, inner, dtype=dtype),
    )


def _places(config: ModelConfig, layer: Layer) -> dict[str, Tensor]:
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    q, k, v = layer.qkv[:queries], layer.qkv[queries:-keys], layer.qkv[-keys:]
    gate, up = layer.gate_up.chunk(2)
    return {
        "input_layernorm": layer.input_norm,
        "self_attn.q_proj": q,
        "self_attn.k_proj": k,
        "self_attn.v_proj": v,
        "self_attn.o_proj": layer.output,
        "post_attention_layernorm": layer.mlp_norm,
        "mlp.gate_proj": gate,
        "mlp.up_proj": up,
        "mlp.down_proj": layer.down,
    }
