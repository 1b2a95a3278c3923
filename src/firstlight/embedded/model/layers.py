"""The pieces of a Llama layer as functions of tensors.

Shapes are suffixes: T rows, D hidden size, N heads, H head size, R half a head; in attention B sequences, K key-value
heads, C queries of each, S positions.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.embedded.model.config import ModelConfig
from firstlight.embedded.model.rope import LinearScaling, Llama3Scaling


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm of the last dimension, computed in float32, in the dtype of x."""
    return functional.rms_norm(x, x.shape[-1:], weight.to(x.dtype), eps)


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


def additive(seen_B1CS: Tensor, group: int, dtype: torch.dtype) -> Tensor:
    """What attention adds to its scores, the rows of `group` heads one after the other."""
    hidden = torch.zeros(seen_B1CS.shape, dtype=dtype, device=seen_B1CS.device).masked_fill(~seen_B1CS, -torch.inf)
    return hidden.repeat(1, 1, group, 1)


def attend(q_BKCH: Tensor, k_BKSH: Tensor, v_BKSH: Tensor, mask_B1CS: Tensor) -> Tensor:
    """Attention in which what a query does not see does not matter to it, be it a number or not.

    A hidden position still takes part in the products, and nothing times NaN is NaN. So what the overflow of one
    request left in a page would spoil whoever has that page next.
    """
    if q_BKCH.device.type == "cpu":  # elsewhere, nothing may look at a number: see cuda_graphs.py
        out_BKCH = functional.scaled_dot_product_attention(q_BKCH, k_BKSH, v_BKSH, attn_mask=mask_B1CS)
        if out_BKCH.isfinite().all():
            return out_BKCH
    broken_BKS = ~(k_BKSH.isfinite() & v_BKSH.isfinite()).all(-1)
    k_BKSH, v_BKSH = (part.masked_fill(broken_BKS[..., None], 0) for part in (k_BKSH, v_BKSH))
    out_BKCH = functional.scaled_dot_product_attention(q_BKCH, k_BKSH, v_BKSH, attn_mask=mask_B1CS)
    sees_broken = ((mask_B1CS == 0) & broken_BKS[:, :, None]).any(-1, keepdim=True)
    return out_BKCH.masked_fill(sees_broken, torch.nan)
