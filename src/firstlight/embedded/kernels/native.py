"""Loads the compiled C operations, or says why they cannot be had.

One run at a time: programs share scratch memory.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from ctypes import addressof
from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.embedded.kernels import build
from firstlight.embedded.kernels import structures as c
from firstlight.embedded.kernels.described import NUMBERS, QuantisedLike, quantised
from firstlight.embedded.kernels.program import Program
from firstlight.embedded.kernels.rows import Rows, SpanLike

__all__ = ["Kernels", "Program", "Rows", "Unavailable", "load"]

SWITCH = "FIRSTLIGHT_KERNELS"
"""`off` in this environment variable runs the engine without the C operations."""


@dataclass(frozen=True)
class Unavailable:
    """Why there are no C operations, in a few words for the log."""

    reason: str


def load(machine: str = "native", tell: Callable[[str], None] = build.silent) -> "Kernels | Unavailable":
    """Compile or find the library, load it and check that it can multiply. Never raises.

    Args:
        machine: value of the compiler's `-march`.
        tell: is told before the compiler is started, which takes its seconds.
    """
    if os.environ.get(SWITCH, "").lower() in {"off", "0", "no"}:
        return Unavailable(f"{SWITCH}={os.environ[SWITCH]}")
    try:
        kernels = Kernels(c.declare(ctypes.CDLL(str(build.library(machine, tell)))))
        fault = _fault(kernels)
    except build.BuildFailed as error:
        return Unavailable(str(error))
    except (OSError, AttributeError) as error:
        return Unavailable(f"the compiled library cannot be loaded: {error}")
    return Unavailable(fault) if fault else kernels


class Kernels:
    """The loaded library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self._threads = 1
        self._scratch = torch.empty(0, dtype=torch.uint8)
        if library.firstlight_op_size() != ctypes.sizeof(c.Op):
            raise OSError("its structures are not those of this version")

    @property
    def threads(self) -> int:
        """Threads of a run. A library that was built without OpenMP stays with one."""
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        self._threads = max(count, 1) if self.library.firstlight_threaded() else 1

    def program(self) -> Program:
        return Program(self)

    def rows(self, spans: Sequence[SpanLike]) -> Rows:
        return Rows.of(spans)

    def dequantise(self, weight: QuantisedLike, out: Tensor) -> None:
        """Write the numbers that `weight` stands for to `out` (N, K), float32, bfloat16 or float16."""
        if tuple(out.shape) != tuple(weight.shape) or not out.is_contiguous():
            raise ValueError(f"a weight of shape {tuple(weight.shape)} does not fit {tuple(out.shape)}")
        op = c.Op(kind=c.LINEAR, weight=quantised(weight))
        scratch, each = self.scratch(self.library.firstlight_scratch(addressof(op)))
        self.library.firstlight_dequantise(
            addressof(op.weight), NUMBERS[out.dtype], out.data_ptr(), scratch, each, self._threads
        )

    def scratch(self, each: int) -> tuple[int, int]:
        """Address of memory for all threads, and bytes of each: whole cache lines, at least `each`."""
        each = -(-each // 64) * 64 + 64
        if self._scratch.numel() < each * self._threads:
            self._scratch = torch.empty(each * self._threads, dtype=torch.uint8)
        return self._scratch.data_ptr(), each


@dataclass(frozen=True)
class _Plain:
    tensor: Tensor


def _fault(kernels: Kernels) -> str:
    """Multiply small whole numbers; says what is wrong with the result, if anything is."""
    x = torch.arange(2 * 70, dtype=torch.float32).view(2, 70) % 7
    weight = torch.arange(5 * 70, dtype=torch.float32).view(5, 70) % 5
    out = torch.zeros(2, 5)
    program = kernels.program()
    program.linear(_Plain(weight), x, out)
    program.run_rows(2)
    expected = [
        [sum(a * b for a, b in zip(row, other, strict=True)) for other in weight.tolist()] for row in x.tolist()
    ]
    return "" if out.tolist() == expected else "the compiled library multiplies wrongly"
