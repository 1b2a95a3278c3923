"""The weights of one rank, read from a checkpoint straight into the places where the model uses them.

Projections that read the same input are stacked, so that one product does the work of several. With several ranks,
q, k, v, gate and up are dealt out by rows, o and down by columns, the head by rows of the vocabulary; embeddings and
norms are whole on every rank. A bias of o or down is added once, so only rank 0 has it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import safe_open
from torch import Tensor

from firstlight.embedded.machine import usable_cpus
from firstlight.embedded.model.checkpoint import Checkpoint
from firstlight.embedded.model.config import ModelConfig
from firstlight.embedded.model.linear import Dense, Weight
from firstlight.embedded.model.reading import Count, Cut, Job, Reader, read_all
from firstlight.embedded.model.share import Share, check_share

if TYPE_CHECKING:
    from firstlight.embedded.model.decoder import Model

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

    embedding: Weight
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
    threads: int = 0,
) -> DecoderWeights:
    """Read what rank `rank` of `ranks` holds; `count(done, total, "bytes")` is told of each piece that has arrived.

    `native` chooses the layout of quantised weights: that of the C kernels, else that of torch's int4 product.
    Raises WrongUsage if the model cannot be dealt out so, ModelNotUsable if a file cannot be read, WaitTimedOut.
    """
    check_share(config, ranks)
    plan = _Plan(config, checkpoint, dtype, Share(rank, ranks))
    weights = plan.decoder()
    files = sorted({cut.source.file for cut in plan.cuts})
    total = sum(cut.bytes for cut in plan.cuts)
    read_all(plan.jobs(), files, total, threads or max(2, min(MOST_THREADS, usable_cpus() // ranks)), count)
    return weights


class _Plan:
    """Makes room for every weight, and notes which part of which file belongs there."""

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint, dtype: torch.dtype, share: Share) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._share = share
        self._places: list[tuple[Cut, Tensor]] = []

    @property
    def cuts(self) -> list[Cut]:
        return [cut for cut, _ in self._places]

    def jobs(self) -> Iterator[Job]:
        """One for each piece, in the order of the files."""
        for cut, place in sorted(self._places, key=lambda item: (item[0].source.file, item[0].source.start)):
            for piece, rows in cut.pieces():
                yield _filling(piece, place[rows])

    def decoder(self) -> DecoderWeights:
        embedding, head = self._ends()
        return DecoderWeights(
            embedding=embedding,
            layers=tuple(self._layer(f"model.layers.{index}") for index in range(self._config.layers)),
            norm=self._whole("model.norm.weight"),
            head=head,
            dtype=self._dtype,
        )

    def _layer(self, prefix: str) -> LayerWeights:
        config, attention, mlp = self._config, f"{prefix}.self_attn", f"{prefix}.mlp"
        qkv = [f"{attention}.{name}_proj" for name in "qkv"]
        gate_up = [f"{mlp}.gate_proj", f"{mlp}.up_proj"]
        return LayerWeights(
            input_norm=self._whole(f"{prefix}.input_layernorm.weight"),
            qkv=self._by_rows(qkv),
            qkv_bias=self._stacked_bias(qkv) if config.qkv_bias else None,
            q_norm=self._whole(f"{attention}.q_norm.weight") if config.head_norms else None,
            k_norm=self._whole(f"{attention}.k_norm.weight") if config.head_norms else None,
            output=self._by_columns(f"{attention}.o_proj"),
            output_bias=self._single_bias(f"{attention}.o_proj") if config.output_bias else None,
            mlp_norm=self._whole(f"{prefix}.post_attention_layernorm.weight"),
            gate_up=self._by_rows(gate_up),
            gate_up_bias=self._stacked_bias(gate_up) if config.mlp_bias else None,
            down=self._by_columns(f"{mlp}.down_proj"),
            down_bias=self._single_bias(f"{mlp}.down_proj") if config.mlp_bias else None,
        )

    def _ends(self) -> tuple[Weight, Weight]:
        """Embedding and head. The head's rows are filled up for all ranks; a tied head is a view of the embedding."""
        vocab, own = self._config.vocab_size, self._share.of_vocabulary(self._config.vocab_size)
        filled = (own.stop - own.start) * self._share.ranks
        embedding = torch.zeros(filled if self._config.tied else vocab, self._config.hidden_size, dtype=self._dtype)
        self._put(Cut.of(self._checkpoint["model.embed_tokens.weight"]), embedding[:vocab])
        if self._config.tied:
            return Dense(embedding[:vocab]), Dense(embedding[own])
        head = torch.zeros(own.stop - own.start, self._config.hidden_size, dtype=self._dtype)
        cut = Cut.of(self._checkpoint["lm_head.weight"], rows=own)
        self._put(cut, head[: cut.shape[0]])
        return Dense(embedding), Dense(head)

    def _by_rows(self, modules: Sequence[str]) -> Weight:
        stored = [self._checkpoint[f"{module}.weight"] for module in modules]
        return Dense(self._stacked([Cut.of(tensor, rows=self._share.of(tensor.shape[0])) for tensor in stored]))

    def _by_columns(self, module: str) -> Weight:
        stored = self._checkpoint[f"{module}.weight"]
        return Dense(self._stacked([Cut.of(stored, columns=self._share.of(stored.shape[1]))]))

    def _stacked_bias(self, modules: Sequence[str]) -> Tensor:
        stored = [self._checkpoint[f"{module}.bias"] for module in modules]
        cuts = [Cut.of(tensor, columns=self._share.of(tensor.shape[0])) for tensor in stored]
        bias = torch.empty(sum(cut.shape[1] for cut in cuts), dtype=self._dtype)
        for cut, part in zip(cuts, torch.split(bias, [cut.shape[1] for cut in cuts]), strict=True):
            self._put(cut, part[None])
        return bias

    def _single_bias(self, module: str) -> Tensor | None:
        return self._whole(f"{module}.bias") if self._share.rank == 0 else None

    def _whole(self, name: str) -> Tensor:
        stored = self._checkpoint[name]
        vector = torch.empty(stored.shape, dtype=self._dtype)
        self._put(Cut.of(stored), vector[None])
        return vector

    def _stacked(self, cuts: Sequence[Cut]) -> Tensor:
        heights = [cut.shape[0] for cut in cuts]
        matrix = torch.empty(sum(heights), cuts[0].shape[1], dtype=self._dtype)
        for cut, part in zip(cuts, torch.split(matrix, heights), strict=True):
            self._put(cut, part)
        return matrix

    def _put(self, cut: Cut, place: Tensor) -> None:
        self._places.append((cut, place))


def _filling(cut: Cut, place: Tensor) -> Job:
    def fill(reader: Reader) -> None:
        reader.fill(cut, place)

    return fill


# --- the path until the decoder takes DecoderWeights ---------------------------------------------------------------

PIECE = 4 << 20
"""Elements copied between two signs of progress, so that a slow disk shows as slow and a dead one as dead."""


def load(model: "Model", checkpoint: Checkpoint, count: Count) -> None:
    """Copy every stored tensor to its place, file by file; `count(done, total, "bytes")` after each piece."""
    places = model.destinations()
    total = sum(tensor.bytes for tensor in checkpoint.values())
    done = 0
    count(done, total, "bytes")
    for path in sorted({tensor.file for tensor in checkpoint.values()}):
        with safe_open(path, "pt") as file:
            for name in _names_in(path, checkpoint):
                source = file.get_tensor(name)
                for copied in _copy(source, places[name]):
                    done += copied
                    count(done, total, "bytes")


def _names_in(path: Path, checkpoint: Checkpoint) -> list[str]:
    return [name for name, tensor in checkpoint.items() if tensor.file == path]


def _copy(source: Tensor, place: Tensor) -> Iterator[int]:
    """Copy piece by piece, converting the dtype on the way; yields the bytes read from the file."""
    source, place = source.view(-1), place.view(-1)
    for start in range(0, source.numel(), PIECE):
        piece = source[start : start + PIECE]
        place[start : start + PIECE] = piece
        yield piece.numel() * piece.element_size()
