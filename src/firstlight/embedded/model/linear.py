"""Weight matrices as the model uses them: plain, or quantised in the layout that the C kernels read.

Shapes are suffixes: T rows of x, N rows and K columns of the weight, G groups of columns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.embedded.model.quantised import BLOCK, unpack4

Dequantise = Callable[["Quantised", Tensor], None]
"""Writes the numbers (N, K) that a quantised weight stands for into a tensor of float32 or bfloat16."""


class Weight(Protocol):
    """A matrix of N rows and K columns."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def bytes(self) -> int:
        """Memory that one product reads."""
        ...

    def product(self, x_TK: Tensor) -> Tensor:
        """x times the transposed matrix (T, N), in the dtype of x."""
        ...

    def rows(self, ids_T: Tensor) -> Tensor:
        """Some rows (T, K): embeddings of tokens."""
        ...


@dataclass(frozen=True)
class Dense:
    """A matrix in float32, bfloat16 or float16."""

    tensor: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.tensor.shape
        return rows, columns

    @property
    def bytes(self) -> int:
        return self.tensor.numel() * self.tensor.element_size()

    def product(self, x_TK: Tensor) -> Tensor:
        return functional.linear(x_TK, self.tensor.to(x_TK.dtype))

    def rows(self, ids_T: Tensor) -> Tensor:
        return functional.embedding(ids_T, self.tensor)


@dataclass(frozen=True)
class Quantised:
    """w[n, k] = scale[n, g] * q[n, k] + minimum[n, g], g being the group of `group` columns that k lies in.

    With 4 bits, q is 0..15 and `packed` is uint16 (N, K/4) in blocks of 64 columns: nibble i of word j of block b is
    column 64 b + 16 i + j; K is filled up to a multiple of 64 with zero weights. With 8 bits, q is -128..127,
    `packed` is int8 (N, K), and there is no minimum. `scale` and `minimum` are float16 or float32 (N, G).
    """

    packed: Tensor
    scale: Tensor
    minimum: Tensor | None
    group: int
    bits: int
    shape: tuple[int, int]
    unpack: Dequantise | None = None
    """The C kernels' way to dequantise, where there is one; torch's otherwise."""

    @property
    def bytes(self) -> int:
        parts = [self.packed, self.scale, *([] if self.minimum is None else [self.minimum])]
        return sum(part.numel() * part.element_size() for part in parts)

    def product(self, x_TK: Tensor) -> Tensor:
        return functional.linear(x_TK, self.dequantised(x_TK.dtype))

    def rows(self, ids_T: Tensor) -> Tensor:
        """The rows as float32."""
        minimum = None if self.minimum is None else self.minimum[ids_T]
        return self._numbers(self.packed[ids_T], self.scale[ids_T], minimum)

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        """The matrix (N, K) in plain numbers, made anew."""
        if self.unpack is None or dtype not in {torch.float32, torch.bfloat16}:
            return self._numbers(self.packed, self.scale, self.minimum).to(dtype)
        numbers = torch.empty(self.shape, dtype=dtype)
        self.unpack(self, numbers)
        return numbers

    def part(self, rows: slice) -> "Quantised":
        """Some of the rows, in the same memory."""
        start, stop, _ = rows.indices(self.shape[0])
        minimum = None if self.minimum is None else self.minimum[start:stop]
        shape = (stop - start, self.shape[1])
        return Quantised(
            self.packed[start:stop], self.scale[start:stop], minimum, self.group, self.bits, shape, self.unpack
        )

    def _numbers(self, packed: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        q = unpack4(packed) if self.bits == 4 else packed
        grouped = q.float().view(len(q), -1, self.group)
        numbers = grouped.mul_(scale.float()[..., None])
        if minimum is not None:
            numbers = numbers.add_(minimum.float()[..., None])
        return numbers.view(len(q), -1)[:, : self.shape[1]]


def padded_columns(columns: int) -> int:
    """Columns of a 4-bit weight in memory, filled up to whole blocks."""
    return -(-columns // BLOCK) * BLOCK
