"""Packing of 4-bit weights: from the words of a checkpoint to numbers, and to the layouts that kernels read.

All work is on bytes, since torch has few operations on 16-bit words and none on nibbles. Words are little-endian.
"""

import torch
from torch import Tensor

BLOCK = 64
"""Columns whose nibbles are mixed in the kernels' layout."""

TORCH_ROWS = 1024
"""Rows that torch is given at once; a multiple of 64."""

TORCH_ROWS_MULTIPLE = 16
"""torch's int4 product wants so many rows or multiples of it."""


def padded_columns(columns: int) -> int:
    """Columns of a 4-bit weight in the kernels' layout: filled up to whole blocks."""
    return -(-columns // BLOCK) * BLOCK


def unpack_words(words: Tensor) -> Tensor:
    """The numbers 0..15 (N, 8 W) in 32-bit words (N, W), the first in the lowest bits, as uint8."""
    pairs = words.reshape(-1).view(torch.uint8).view(len(words), -1)
    return torch.stack((pairs & 15, pairs >> 4), dim=-1).flatten(1)


def pack4(q_NK: Tensor) -> Tensor:
    """The kernels' layout, uint16 (N, K/4), of numbers 0..15 (N, K), uint8, K a multiple of BLOCK."""
    rows = len(q_NK)
    quarters = q_NK.view(rows, -1, 4, BLOCK // 4)
    low = quarters[:, :, 0] | quarters[:, :, 1] << 4
    high = quarters[:, :, 2] | quarters[:, :, 3] << 4
    return torch.stack((low, high), dim=-1).view(rows, -1).view(torch.uint16)


def torch_pack4(q_NK: Tensor, out: Tensor) -> None:
    """The layout of torch's int4 product on the CPU, uint8 (N, K/2), of numbers 0..15 (N, K), uint8.

    torch packs runs of TORCH_ROWS rows by themselves, so it can be given the matrix in runs: it wants 32-bit numbers.
    """
    for start in range(0, len(q_NK), TORCH_ROWS):
        run = slice(start, start + TORCH_ROWS)
        out[run] = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q_NK[run].int(), 1)


def unpack4(packed: Tensor) -> Tensor:
    """The numbers 0..15 (N, K), uint8, in the kernels' layout, uint16 (N, K/4)."""
    rows = len(packed)
    halves = packed.contiguous().view(torch.uint8).view(rows, -1, BLOCK // 4, 2)
    low, high = halves[..., 0], halves[..., 1]
    return torch.stack((low & 15, low >> 4, high & 15, high >> 4), dim=2).view(rows, -1)
