"""What the C operations should give, in torch and in float32 or float64."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Span(NamedTuple):
    start: int
    count: int
    pages: list[int]


@dataclass(frozen=True)
class Plain:
    tensor: Tensor


@dataclass(frozen=True)
class Quantised:
    """With the numbers that it stands for, float32."""

    packed: Tensor
    scale: Tensor
    minimum: Tensor | None
    group: int
    bits: int
    shape: tuple[int, int]
    numbers: Tensor


def random_quantised(rows: int, columns: int, bits: int, group: int, scale_dtype: torch.dtype) -> Quantised:
    groups = -(-columns // group)
    scale = (torch.rand(rows, groups) * 0.1 + 0.01).to(scale_dtype)
    spread = scale.float().repeat_interleave(group, 1)[:, :columns]
    if bits == 8:
        q = torch.randint(-128, 128, (rows, columns), dtype=torch.int8)
        return Quantised(q, scale, None, group, bits, (rows, columns), q.float() * spread)
    q = torch.randint(0, 16, (rows, columns), dtype=torch.uint8)
    minimum = (-8 * scale.float() + torch.randn(rows, groups) * 0.01).to(scale_dtype)
    offset = minimum.float().repeat_interleave(group, 1)[:, :columns]
    exact = (q.double() * spread.double() + offset.double()).float()
    return Quantised(pack4(q), scale, minimum, group, bits, (rows, columns), exact)


def pack4(q_NK: Tensor) -> Tensor:
    """Nibble i of word j of a block is column 64 b + 16 i + j."""
    filled = functional.pad(q_NK, (0, -q_NK.shape[1] % 64)).to(torch.int32).unflatten(1, (-1, 4, 16))
    words = sum(filled[:, :, i] << 4 * i for i in range(4))
    assert isinstance(words, Tensor)
    return words.flatten(1).to(torch.uint16)


def attention(  # noqa: PLR0917
    qkv: Tensor, keys: Tensor, values: Tensor, span: Span, row: int, window: int, scale: float
) -> Tensor:
    """One row of `span`, from the pages, in float64; qkv is [heads | kv | kv] and its queries are already turned."""
    _, kv_heads, _, size = keys.shape
    position = span.start + row
    first = max(0, position - window + 1) if window else 0
    k = keys[span.pages].transpose(0, 1).reshape(kv_heads, -1, size)[:, first : position + 1].double()
    v = values[span.pages].transpose(0, 1).reshape(kv_heads, -1, size)[:, first : position + 1].double()
    heads = qkv.shape[-1] // size - 2 * kv_heads
    q = qkv[: heads * size].double().view(kv_heads, -1, size)
    weights = torch.softmax(q @ k.transpose(1, 2) * scale, -1)
    return (weights @ v).reshape(-1)
