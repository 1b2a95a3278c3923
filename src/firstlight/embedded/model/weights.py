"""The weights of one rank, read from a checkpoint straight into the places where the model uses them.

Projections that read the same input are stacked, so that one product does the work of several. With several ranks,
q, k, v, gate and up are dealt out by rows, o and down by columns, the head by rows of the vocabulary; embeddings and
norms are whole on every rank. A bias of o or down is added once, so only rank 0 has it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from firstlight.embedded.machine import usable_cpus
from firstlight.embedded.model.checkpoint import Checkpoint
from firstlight.embedded.model.config import ModelConfig
from firstlight.embedded.model.linear import Dequantise, Embedding, Weight
from firstlight.embedded.model.placing import Placer
from firstlight.embedded.model.reading import Count, read_all
from firstlight.embedded.model.share import Share, check_share

if TYPE_CHECKING:
    pass

MOST_THREADS = 8
"""More threads than this read no faster from page cache or disk."""


@dataclass(frozen=True)
class LayerWeights:
    """One layer's weights on one rank; matrices are (outputs, inputs)."""

    input_norm: Tensor
    qkv: Weight
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Weight
    output_bias: Tensor | None
    """On rank 0 only: the ranks' parts of the output are added up."""
    mlp_norm: Tensor
    gate_up: Weight
    gate_up_bias: Tensor | None
    down: Weight
    down_bias: Tensor | None
    """On rank 0 only."""


@dataclass(frozen=True)
class DecoderWeights:
    """All weights of one rank. Rows of `head` beyond the vocabulary (on the last ranks) are zero."""

    embedding: Embedding
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Weight
    dtype: torch.dtype


def load_weights(
    config: ModelConfig,
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    *,
    rank: int = 0,
    ranks: int = 1,
    count: Count,
    native: bool = False,
    dequantise: Dequantise | None = None,
    threads: int = 0,
) -> DecoderWeights:
    """Read what rank `rank` of `ranks` holds; `count(done, total, "bytes")` is told of each piece that has arrived.

    `native` chooses the layout of quantised weights: that of the C kernels (which bring a fast `dequantise`), else
    that of torch's int4 product where that can be used, else plain numbers.
    Raises WrongUsage if the model cannot be dealt out so, ModelNotUsable if a file cannot be read, WaitTimedOut.
    """
    check_share(config, ranks)
    placer = Placer(config, checkpoint, dtype, Share(rank, ranks), native=native, unpack=dequantise)
    embedding, head = placer.embedding_and_head()
    weights = DecoderWeights(
        embedding=embedding,
        layers=tuple(_layer(config, placer, f"model.layers.{index}") for index in range(config.layers)),
        norm=placer.vector("model.norm.weight"),
        head=head,
        dtype=dtype,
    )
    files = sorted({cut.source.file for cut in placer.cuts})
    total = sum(cut.bytes for cut in placer.cuts)
    read_all(placer.jobs(), files, total, threads or max(2, min(MOST_THREADS, usable_cpus() // ranks)), count)
    return weights


def _layer(config: ModelConfig, placer: Placer, prefix: str) -> LayerWeights:
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    qkv = [f"{attention}.{name}_proj" for name in "qkv"]
    gate_up = [f"{mlp}.gate_proj", f"{mlp}.up_proj"]
    return LayerWeights(
        input_norm=placer.vector(f"{prefix}.input_layernorm.weight"),
        qkv=placer.by_rows(qkv),
        qkv_bias=placer.bias_by_rows(qkv) if config.qkv_bias else None,
        q_norm=placer.vector(f"{attention}.q_norm.weight") if config.head_norms else None,
        k_norm=placer.vector(f"{attention}.k_norm.weight") if config.head_norms else None,
        output=placer.by_columns(f"{attention}.o_proj"),
        output_bias=placer.bias_once(f"{attention}.o_proj") if config.output_bias else None,
        mlp_norm=placer.vector(f"{prefix}.post_attention_layernorm.weight"),
        gate_up=placer.by_rows(gate_up),
        gate_up_bias=placer.bias_by_rows(gate_up) if config.mlp_bias else None,
        down=placer.by_columns(f"{mlp}.down_proj"),
        down_bias=placer.bias_once(f"{mlp}.down_proj") if config.mlp_bias else None,
    )
