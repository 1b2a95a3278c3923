"""The pieces of a Llama layer as functions of tensors.

Shapes are suffixes: T tokens of this call, S all tokens so far, D hidden size, N query heads, K key-value heads,
H head size, R half a head, V vocabulary.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.embedded.model.config import ModelConfig
from firstlight.embedded.model.rope import LinearScaling, Llama3Scaling


def rms_norm(x_TD: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm, computed in float32 as transformers does, so that results agree bit by bit."""
    x = x_TD.float()
    scaled = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return weight_D * scaled.to(x_TD.dtype)


def gated_mlp(x_TD: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """SwiGLU; `gate_up` holds both input projections, so that one product does the work of two."""
    gate, up = functional.linear(x_TD, gate_up).chunk(2, dim=-1)
    return functional.linear(functional.silu(gate) * up, down)


def rotary_table(config: ModelConfig, positions: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position up to `positions`, each of shape (positions, R)."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies_R = 1.0 / (config.rope_theta**exponents)
    if isinstance(config.rope_scaling, LinearScaling):
        frequencies_R = frequencies_R / config.rope_scaling.factor
    if isinstance(config.rope_scaling, Llama3Scaling):
        frequencies_R = stretch_llama3(frequencies_R, config.rope_scaling)
    angles = torch.outer(torch.arange(positions).float(), frequencies_R)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def stretch_llama3(frequencies_R: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Llama 3.1's stretch: slow frequencies divided by `factor`, fast ones kept, a ramp between them."""
    turns = scaling.original_max_position_embeddings * frequencies_R / (2 * math.pi)
    ramp = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = ramp.clamp(0, 1)
    return (1 - kept) * frequencies_R / scaling.factor + kept * frequencies_R


def rotate(x_TNH: Tensor, cos_TR: Tensor, sin_TR: Tensor) -> Tensor:
    """Turn each head by its position; halves are paired as in transformers (first with second half)."""
    first, second = x_TNH.chunk(2, dim=-1)
    cos, sin = cos_TR[:, None], sin_TR[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def causal_mask(tokens: int, seen: int, heads_sharing: int) -> Tensor | None:
    """Which of S positions each row of a grouped query may see; None where the one new token may see all."""
    if tokens == 1:
        return None
    mask_TS = torch.ones(tokens, seen, dtype=torch.bool).tril(seen - tokens)
    return mask_TS.repeat(heads_sharing, 1)


def attention(q_TNH: Tensor, k_KSH: Tensor, v_KSH: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of the last T of S positions; returns (T, N * H).

    The query heads that share a key-value head become rows of one query, so that keys and values are read in place
    and never repeated; `causal_mask` has a row for each.
    """
    tokens, heads, size = q_TNH.shape
    shared = k_KSH.shape[0]
    q = q_TNH.view(tokens, shared, -1, size).permute(1, 2, 0, 3).reshape(1, shared, -1, size)
    out = functional.scaled_dot_product_attention(q, k_KSH[None], v_KSH[None], attn_mask=mask)
    return out.view(shared, -1, tokens, size).permute(2, 0, 1, 3).reshape(tokens, heads * size)
