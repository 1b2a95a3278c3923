"""One forward pass as plain data: what rank 0 decides and every rank runs."""

from dataclasses import dataclass
from typing import Literal

import msgspec
from torch import Tensor

PAGE = 16
"""Positions in a page of the KV cache."""
CHUNK = 256
"""Prompt tokens in a prefill pass. Chunks are cut at multiples of it, so that a prompt is computed alike whatever
else runs: the sum inside a matrix product depends on its shape."""


class Span(msgspec.Struct, frozen=True):
    """The rows of one sequence in a pass: `count` tokens at positions `start`…; `pages` is its page table."""

    start: int
    count: int
    pages: list[int]


class Pass(msgspec.Struct, frozen=True):
    """One forward pass. A prefill pass has one span of at most CHUNK rows; a decode pass has a few rows a span.

    `tokens` has the rows of all spans one after the other. `wanted` are the rows whose scores are asked for, `tapped`
    the states asked for of every row: k is the residual stream after k layers, before any final norm.
    """

    number: int
    kind: Literal["prefill", "decode"]
    tokens: list[int]
    spans: list[Span]
    wanted: list[int]
    tapped: list[int] = []


@dataclass(frozen=True)
class Result:
    """What a pass gives on rank 0: scores (wanted rows, V) and each tapped state (rows, D), all float32."""

    logits: Tensor
    states: dict[int, Tensor]
