"""Weights as the C operations see them: where the numbers lie, and how they are written."""

from typing import Protocol

import torch
from torch import Tensor

from firstlight.embedded.kernels import structures as c

NUMBERS = {torch.float32: c.F32, torch.bfloat16: c.BF16, torch.float16: c.F16}


class DenseLike(Protocol):
    """A weight (N, K) in plain numbers, as model/linear.py has it."""

    @property
    def tensor(self) -> Tensor: ...


class QuantisedLike(Protocol):
    """w[n, k] = scale[n, k // group] * q[n, k] + minimum[n, k // group], as model/linear.py lays it out."""

    @property
    def packed(self) -> Tensor: ...
    @property
    def scale(self) -> Tensor: ...
    @property
    def minimum(self) -> Tensor | None: ...
    @property
    def group(self) -> int: ...
    @property
    def bits(self) -> int: ...
    @property
    def shape(self) -> tuple[int, int]: ...


def described(weight: DenseLike | QuantisedLike) -> c.Weight:
    """Raises ValueError where its tensors are not laid out as linear.c reads them."""
    tensor: Tensor | None = getattr(weight, "tensor", None)
    return quantised(weight) if tensor is None else dense(tensor)  # type: ignore[arg-type]


def dense(tensor: Tensor) -> c.Weight:
    if tensor.dim() != 2 or tensor.stride(1) != 1 or tensor.dtype not in NUMBERS:
        raise ValueError(f"{tensor.dtype} {tuple(tensor.shape)} is no weight in rows")
    return c.Weight(
        rows=tensor.shape[0],
        columns=tensor.shape[1],
        row_bytes=tensor.stride(0) * tensor.element_size(),
        data=tensor.data_ptr(),
        kind=NUMBERS[tensor.dtype],
    )


def quantised(weight: QuantisedLike) -> c.Weight:
    (rows, columns), packed, scale, minimum = weight.shape, weight.packed, weight.scale, weight.minimum
    needed = -(-columns // 64) * 32 if weight.bits == 4 else columns
    if weight.bits not in {4, 8} or weight.group not in {32, 64, 128}:
        raise ValueError(f"{weight.bits} bits in groups of {weight.group} are not known")
    if not all(part.is_contiguous() for part in (packed, scale, scale if minimum is None else minimum)):
        raise ValueError("quantised weights must be contiguous")
    if len(packed) != rows or packed.shape[1] * packed.element_size() < needed:
        raise ValueError(f"{packed.dtype} {tuple(packed.shape)} is too little for {rows} x {columns}")
    if len(scale) != rows or scale.shape[1] * weight.group < columns or scale.dtype not in NUMBERS:
        raise ValueError(f"scales of shape {tuple(scale.shape)} are too few for {rows} x {columns}")
    if minimum is not None and (minimum.shape != scale.shape or minimum.dtype != scale.dtype):
        raise ValueError("minima are not like scales")
    return c.Weight(
        rows=rows,
        columns=columns,
        row_bytes=packed.shape[1] * packed.element_size(),
        data=packed.data_ptr(),
        scale=scale.data_ptr(),
        minimum=None if minimum is None else minimum.data_ptr(),
        groups=scale.shape[1],
        kind=c.Q4 if weight.bits == 4 else c.Q8,
        scale_kind=NUMBERS[scale.dtype],
        group_shift=weight.group.bit_length() - 1,
    )
