"""Weight matrices as the model uses them: plain, or quantised in the layout that the C kernels read.

Shapes are suffixes: T rows of x, N rows and K columns of the weight, G groups of columns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.embedded.model.quantised import unpack4

Dequantise = Callable[["Quantised", Tensor], None]
"""Writes the numbers (N, K) that a quantised weight stands for into a tensor of floats."""


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


class Embedding(Weight, Protocol):
    """A matrix of which rows are looked up."""

    def rows(self, ids_T: Tensor) -> Tensor:
        """Some rows (T, K)."""
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
        """The rows in the matrix's own dtype."""
        return functional.embedding(ids_T, self.tensor)

    def part(self, rows: slice) -> "Dense":
        """Some of the rows, in the same memory."""
        return Dense(self.tensor[rows])


@dataclass(frozen=True)
class Quantised:
    """w[n, k] = scale[n, g] * q[n, k] + minimum[n, g], g being the group of `group` columns that k lies in.

    With 4 bits, q is 0..15 and `packed` is uint16 (N, K/4) in blocks of 64 columns: nibble i of word j of block b is
    column 64 b + 16 i + j; K is filled up to a multiple of 64 with zero weights. With 8 bits, q is -128..127,
    `packed` is int8 (N, K), and there is no minimum. `scale` and `minimum` are floats (N, G).
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
        packed = self.packed.view(torch.int16)[ids_T].view(torch.uint16) if self.bits == 4 else self.packed[ids_T]
        return self._numbers(packed, self.scale[ids_T], None if self.minimum is None else self.minimum[ids_T])

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        """The matrix (N, K) in plain numbers, made anew."""
        if self.unpack is None:
            return self._numbers(self.packed, self.scale, self.minimum).to(dtype)
        numbers = torch.empty(self.shape, dtype=dtype)
        self.unpack(self, numbers)
        return numbers

    def part(self, rows: slice) -> "Quantised":
        """Some of the rows, in the same memory."""
        minimum = None if self.minimum is None else self.minimum[rows]
        packed = self.packed[rows]
        shape = (len(packed), self.shape[1])
        return Quantised(packed, self.scale[rows], minimum, self.group, self.bits, shape, self.unpack)

    def _numbers(self, packed: Tensor, scale: Tensor, minimum: Tensor | None) -> Tensor:
        q = unpack4(packed)[:, : self.shape[1]] if self.bits == 4 else packed
        numbers = q.float().view(*scale.shape, self.group).mul_(scale.float()[..., None])
        if minimum is not None:
            numbers.add_(minimum.float()[..., None])
        return numbers.view(q.shape)


@dataclass(frozen=True)
class TorchPacked:
    """A 4-bit matrix in the layout of torch's int4 product on the CPU, w = scale * (q - 8) + zero.

    `packed` is uint8 (N, K/2), `scales_and_zeros` bfloat16 (G, N, 2), which is all that the product takes. bfloat16
    has 8 bits of precision: a scale that was float16 changes by up to 1 part in 256, and so do the weights of its
    group, all in the same way.
    """

    packed: Tensor
    scales_and_zeros: Tensor
    group: int
    shape: tuple[int, int]

    @property
    def bytes(self) -> int:
        return self.packed.numel() + self.scales_and_zeros.numel() * self.scales_and_zeros.element_size()

    def product(self, x_TK: Tensor) -> Tensor:
        product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x_TK, self.packed, self.group, self.scales_and_zeros
        )
        return product
