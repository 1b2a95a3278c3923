"""A program of C operations over preallocated rows of float32: built once, run for every pass.

A run is one call into C. Tensors that an operation names are kept alive by its program.
"""

import ctypes
from ctypes import addressof
from typing import Protocol

import torch
from torch import Tensor

from firstlight.embedded.kernels import structures as c
from firstlight.embedded.kernels.described import NUMBERS, DenseLike, QuantisedLike, described
from firstlight.embedded.kernels.rows import Rows


class Team(Protocol):
    """Who runs programs: native.Kernels."""

    @property
    def library(self) -> ctypes.CDLL: ...
    @property
    def threads(self) -> int: ...
    def scratch(self, each: int) -> tuple[int, int]: ...


class Program:
    """Operations in order. x, delta and out are float32 (most rows, width); what is not said is as in ops.h.

    The methods that add an operation raise ValueError where tensors do not fit together.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._ops: list[c.Op] = []
        self._kept: list[object] = []
        self._most_rows = 2**31 - 1
        self._needs_pages = False
        self._scratch_each = 0
        self._array: ctypes.Array[c.Op] | None = None

    def add_norm(self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float, out: Tensor) -> None:
        """x += delta; out = rms_norm(x) * weight."""
        _same_width(x, out, delta)
        self._add(
            c.Op(
                kind=c.ADD_NORM,
                eps=eps,
                x=self._rows(x),
                delta=self._rows(delta),
                out=self._rows(out),
                norm=self._vector(weight, x.shape[1]),
            )
        )

    def linear(self, weight: DenseLike | QuantisedLike, x: Tensor, out: Tensor, bias: Tensor | None = None) -> None:
        """out = x times the transposed weight, plus a bias."""
        own = described(weight)
        self._kept.append(weight)
        if (own.columns, own.rows) != (x.shape[1], out.shape[1]):
            raise ValueError(
                f"a weight {own.rows} x {own.columns} does not fit {tuple(x.shape)} -> {tuple(out.shape)}"
            )
        self._add(
            c.Op(
                kind=c.LINEAR,
                x=self._rows(x),
                out=self._rows(out),
                weight=own,
                bias=self._vector(bias, out.shape[1]),
            )
        )

    def place(  # noqa: PLR0917  (as many things as it joins)
        self,
        qkv: Tensor,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        eps: float,
        cos: Tensor,
        sin: Tensor,
        keys: Tensor,
        values: Tensor,
    ) -> None:
        """Norm (where there is one) and turn queries and keys in place; write keys and values to their pages.

        Args:
            qkv: each row is [heads | kv_heads | kv_heads] of head_dim numbers.
            cos, sin: float32 (positions, head_dim / 2).
            keys, values: of one layer, (pages, kv_heads, PAGE, head_dim).
        """
        cache, half = self._cache(qkv, keys, values), keys.shape[3] // 2
        if not cos.shape == sin.shape == (len(cos), half):
            raise ValueError(
                f"turns of shape {tuple(cos.shape)} and {tuple(sin.shape)} do not fit heads of {2 * half}"
            )
        self._add(
            c.Op(
                kind=c.PLACE,
                eps=eps,
                x=self._rows(qkv),
                cache=cache,
                q_norm=self._vector(q_norm, 2 * half),
                k_norm=self._vector(k_norm, 2 * half),
                cos=self._vector(cos.view(-1), cos.numel()),
                sin=self._vector(sin.view(-1), sin.numel()),
                positions=len(cos),
            )
        )

    def attend(  # noqa: PLR0917
        self, qkv: Tensor, keys: Tensor, values: Tensor, out: Tensor, window: int, scale: float
    ) -> None:
        """Each row attends to its sequence up to its own position: to the last `window` of it unless that is 0."""
        cache = self._cache(qkv, keys, values)
        heads = qkv.shape[1] // keys.shape[3] - 2 * keys.shape[1]
        if out.shape[1] != heads * keys.shape[3]:
            raise ValueError(f"{heads} heads of {keys.shape[3]} do not fit {tuple(out.shape)}")
        self._add(
            c.Op(kind=c.ATTEND, x=self._rows(qkv), out=self._rows(out), cache=cache, window=window, scale=scale)
        )

    def swiglu(self, gate_up: Tensor, out: Tensor) -> None:
        """out = silu(gate) * up, where a row of `gate_up` is [gate | up]."""
        if gate_up.shape[1] != 2 * out.shape[1]:
            raise ValueError(f"{tuple(gate_up.shape)} is not twice as wide as {tuple(out.shape)}")
        self._add(c.Op(kind=c.SWIGLU, x=self._rows(gate_up), out=self._rows(out)))

    def copy(self, x: Tensor, delta: Tensor | None, out: Tensor) -> None:
        """out = x + delta."""
        _same_width(x, out, delta)
        self._add(c.Op(kind=c.COPY, x=self._rows(x), delta=self._rows(delta), out=self._rows(out)))

    def run(self, rows: Rows) -> None:
        """Run all operations on the first rows of their buffers. Raises ValueError where they would go outside."""
        if rows.count > self._most_rows:
            raise ValueError(f"{rows.count} rows do not fit buffers of {self._most_rows}")
        if self._array is None:
            self._array = (c.Op * len(self._ops))(*self._ops)
        team = self._team
        scratch, each = team.scratch(self._scratch_each)
        outside = team.library.firstlight_run(self._array, len(self._ops), rows.address, scratch, each, team.threads)
        if outside >= 0:
            raise ValueError(f"operation {outside}: a row's position or page lies outside the cache")

    def run_rows(self, count: int) -> None:
        """Run a program that has neither `place` nor `attend`. Raises ValueError otherwise."""
        if self._needs_pages:
            raise ValueError("this program needs to know the positions and pages of its rows")
        self.run(Rows.without_pages(count))

    def _add(self, op: c.Op) -> None:
        self._ops.append(op)
        self._array = None
        self._needs_pages |= op.kind in {c.PLACE, c.ATTEND}
        self._scratch_each = max(self._scratch_each, self._team.library.firstlight_scratch(addressof(op)))

    def _rows(self, tensor: Tensor | None) -> c.Matrix:
        if tensor is None:
            return c.Matrix()
        if tensor.dtype != torch.float32 or tensor.dim() != 2 or tensor.stride(1) != 1 or tensor.is_cuda:
            raise ValueError(f"rows must be float32 in memory, not {tensor.dtype} {tuple(tensor.shape)}")
        self._kept.append(tensor)
        self._most_rows = min(self._most_rows, len(tensor))
        return c.Matrix(tensor.data_ptr(), tensor.stride(0), tensor.shape[1])

    def _vector(self, tensor: Tensor | None, length: int) -> int | None:
        if tensor is None:
            return None
        if tensor.dtype != torch.float32 or tuple(tensor.shape) != (length,) or not tensor.is_contiguous():
            raise ValueError(f"{tensor.dtype} {tuple(tensor.shape)} is not {length} numbers of float32")
        self._kept.append(tensor)
        return tensor.data_ptr()

    def _cache(self, qkv: Tensor, keys: Tensor, values: Tensor) -> c.Cache:
        pages, kv_heads, page, head_dim = keys.shape
        if page != c.PAGE or values.shape != keys.shape or not (keys.is_contiguous() and values.is_contiguous()):
            raise ValueError(f"keys {tuple(keys.shape)} and values {tuple(values.shape)} are not pages of {c.PAGE}")
        heads, rest = divmod(qkv.shape[1], head_dim)
        if rest or heads <= 2 * kv_heads or (heads - 2 * kv_heads) % kv_heads or head_dim % 2:
            raise ValueError(
                f"rows of {qkv.shape[1]} are not heads of {head_dim}, {kv_heads} of them keys and values"
            )
        self._kept += (keys, values)
        return c.Cache(keys.data_ptr(), values.data_ptr(), pages, kv_heads, head_dim, NUMBERS[keys.dtype])


def _same_width(x: Tensor, out: Tensor, delta: Tensor | None) -> None:
    if x.shape[1] != out.shape[1] or (delta is not None and delta.shape[1] != x.shape[1]):
        raise ValueError("x, delta and out are not equally wide")
