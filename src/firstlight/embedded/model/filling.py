"""From stored tensors to places in memory: what is to be read for each weight, and what is made of it on the way.

A task knows which parts of the files it needs (`cuts`) and splits its work into jobs of a piece each, so that several
threads can share a large matrix. Nothing larger than a piece exists twice, but for torch's own layout of 4-bit
weights, which is made of whole matrices.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.embedded.model.quantised import BLOCK, pack4, torch_pack4, unpack_words
from firstlight.embedded.model.reading import Cut, Job, Reader

ZERO_POINT = 8
"""Of 4-bit weights without stored zero points."""


class Task(Protocol):
    """The filling of one place."""

    @property
    def cuts(self) -> Sequence[Cut]: ...

    def jobs(self) -> Iterator[Job]: ...


@dataclass(frozen=True)
class Fill:
    """Numbers go to `place` as they are, in its dtype."""

    cut: Cut
    place: Tensor

    @property
    def cuts(self) -> Sequence[Cut]:
        return (self.cut,)

    def jobs(self) -> Iterator[Job]:
        for piece, rows in self.cut.pieces():
            yield partial(_fill, cut=piece, place=self.place[rows])


def _fill(reader: Reader, cut: Cut, place: Tensor) -> None:
    reader.fill(cut, place)


@dataclass(frozen=True)
class QuantisedPart:
    """One rank's part of a quantised matrix as it is stored, w = scale * q + minimum.

    The minimum is stored, or is -scale times a zero point: a stored one (eight to a word, along the rows), or
    ZERO_POINT; with 8 bits it is none.
    """

    packed: Cut
    scale: Cut
    minimum: Cut | None
    zero_point: Cut | None
    bits: int

    @property
    def cuts(self) -> Sequence[Cut]:
        return [cut for cut in (self.packed, self.scale, self.minimum, self.zero_point) if cut is not None]

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.packed.shape
        return rows, columns * 8 if self.bits == 4 else columns

    def pieces(self) -> Iterator[tuple["QuantisedPart", slice]]:
        """The part in runs of rows; zero points are cut at whole words, so runs are of multiples of eight rows."""
        step = max(8, self.packed.piece_rows // 8 * 8)
        for start in range(0, self.shape[0], step):
            rows = slice(start, min(start + step, self.shape[0]))
            words = slice(rows.start // 8, -(-rows.stop // 8))
            yield (
                QuantisedPart(
                    self.packed.part(rows),
                    self.scale.part(rows),
                    self.minimum and self.minimum.part(rows),
                    self.zero_point and self.zero_point.part(words),
                    self.bits,
                ),
                rows,
            )

    def levels(self, reader: Reader) -> Tensor:
        """q: uint8 (N, K) of 0..15, or int8."""
        stored = reader.matrix(self.packed)
        return unpack_words(stored) if self.bits == 4 else stored

    def scales(self, reader: Reader) -> tuple[Tensor, Tensor | None]:
        """Scale and minimum, float32 (N, G)."""
        scale = reader.matrix(self.scale).float()
        if self.minimum is not None:
            return scale, reader.matrix(self.minimum).float()
        if self.zero_point is not None:
            return scale, -scale * self._zero_points(reader)
        return scale, -scale * ZERO_POINT if self.bits == 4 else None

    def numbers(self, reader: Reader) -> Tensor:
        """What the weights stand for, float32 (N, K)."""
        scale, minimum = self.scales(reader)
        grouped = self.levels(reader).float().view(*scale.shape, -1).mul_(scale[..., None])
        if minimum is not None:
            grouped.add_(minimum[..., None])
        return grouped.view(self.shape)

    def _zero_points(self, reader: Reader) -> Tensor:
        assert self.zero_point is not None
        return unpack_words(reader.matrix(self.zero_point).T).T[: self.shape[0]]


@dataclass(frozen=True)
class _ByPiece(ABC):
    """Quantised weights that are filled in piece by piece."""

    part: QuantisedPart

    @property
    def cuts(self) -> Sequence[Cut]:
        return self.part.cuts

    def jobs(self) -> Iterator[Job]:
        for piece, rows in self.part.pieces():
            yield partial(self._fill, piece=piece, rows=rows)

    @abstractmethod
    def _fill(self, reader: Reader, piece: QuantisedPart, rows: slice) -> None: ...


@dataclass(frozen=True)
class FillKernels(_ByPiece):
    """4-bit or 8-bit weights in the layout of the C kernels; the places are those of `linear.Quantised`."""

    packed: Tensor
    scale: Tensor
    minimum: Tensor | None

    def _fill(self, reader: Reader, piece: QuantisedPart, rows: slice) -> None:
        scale, minimum = piece.scales(reader)
        self.scale[rows] = scale
        if self.minimum is not None and minimum is not None:
            self.minimum[rows] = minimum
        if piece.bits == 8:
            reader.fill(piece.packed, self.packed[rows])
        else:
            levels = piece.levels(reader)
            self.packed[rows] = pack4(functional.pad(levels, (0, -levels.shape[1] % BLOCK)))


@dataclass(frozen=True)
class FillNumbers(_ByPiece):
    """Quantised weights turned to plain numbers, where nothing can compute with them as they are."""

    place: Tensor

    def _fill(self, reader: Reader, piece: QuantisedPart, rows: slice) -> None:
        self.place[rows] = piece.numbers(reader)


@dataclass(frozen=True)
class FillTorch:
    """4-bit weights in the layout of torch's int4 product; the places are those of `linear.TorchPacked`."""

    parts: Sequence[QuantisedPart]
    packed: Tensor
    scales_and_zeros: Tensor

    @property
    def cuts(self) -> Sequence[Cut]:
        return [cut for part in self.parts for cut in part.cuts]

    def jobs(self) -> Iterator[Job]:
        yield self._fill

    def _fill(self, reader: Reader) -> None:
        start = 0
        levels = torch.empty(len(self.packed), self.parts[0].shape[1], dtype=torch.uint8)
        for part in self.parts:
            for piece, rows in part.pieces():
                place = slice(start + rows.start, start + rows.stop)
                levels[place] = piece.levels(reader)
                scale, minimum = piece.scales(reader)
                self.scales_and_zeros[:, place, 0] = scale.T
                if minimum is not None:
                    self.scales_and_zeros[:, place, 1] = (minimum + ZERO_POINT * scale).T
            start += part.shape[0]
        torch_pack4(levels, self.packed)
