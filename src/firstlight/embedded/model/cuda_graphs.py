"""Decode passes as CUDA graphs: the launch of some hundred small kernels replayed as one.

A graph has fixed shapes, so a pass is padded: more rows, up to a power of two, and wider page tables. Every row
counts as a sequence of its own, which it may, since the keys of all rows are written before any row reads. The
padding reads and writes a spare page behind the last one. Not measured: this was written without a GPU at hand, and
what is tested is the padding, on the CPU.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.embedded.model.layout import Layout
from firstlight.embedded.model.passes import Pass, Span
from firstlight.embedded.model.torch_path import TorchPath

PAGES_STEP = 32
"""Page tables are as wide as a multiple of this: 512 positions."""


class Shape(NamedTuple):
    """What one graph is good for."""

    rows: int
    pages: int
    tapped: tuple[int, ...]


@dataclass
class Graph:
    """Tensors that stay where they are: the inputs are copied in, the outputs are copied out."""

    tokens: Tensor
    layout: Layout
    x_TD: Tensor
    states: dict[int, Tensor]
    replay: Callable[[], None]


class GraphedPath:
    """Decode passes of `path`; a shape that was not seen before is captured first."""

    def __init__(self, path: TorchPath, spare_page: int) -> None:
        self._path = path
        self._spare_page = spare_page
        self._graphs: dict[Shape, Graph] = {}

    def hidden(self, work: Pass, beat: Callable[[], None]) -> tuple[Tensor, dict[int, Tensor]]:
        """As TorchPath.hidden."""
        shape = shape_of(work)
        layout = Layout.of(single_rows(work, shape, self._spare_page), pages=shape.pages, device=self._path.device)
        tokens = work.tokens + [0] * (shape.rows - len(work.tokens))
        tokens_T = torch.tensor(tokens, device=self._path.device)
        if shape not in self._graphs:
            self._graphs[shape] = self._capture(shape, tokens_T, layout)
        graph = self._graphs[shape]
        graph.tokens.copy_(tokens_T)
        for place, value in zip(graph.layout.tensors(), layout.tensors(), strict=True):
            place.copy_(value)
        graph.replay()
        beat()
        count = len(work.tokens)
        return graph.x_TD[:count], {state: whole[:count].clone() for state, whole in graph.states.items()}

    def scores(self, x_TD: Tensor) -> Tensor:
        return self._path.scores(x_TD)

    def normed(self, x_TD: Tensor) -> Tensor:
        return self._path.normed(x_TD)

    def _capture(self, shape: Shape, tokens_T: Tensor, layout: Layout) -> Graph:
        def run() -> tuple[Tensor, dict[int, Tensor]]:
            return self._path.states(tokens_T, layout, shape.tapped, _nothing)

        if self._path.device.type != "cuda":  # the same without a graph, for tests of the padding
            x_TD, states = run()
            graph = Graph(tokens_T, layout, x_TD, states, _nothing)

            def again() -> None:
                graph.x_TD, graph.states = run()

            graph.replay = again
            return graph
        run()  # first calls allocate and choose algorithms, which must not be captured
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            x_TD, states = run()
        return Graph(tokens_T, layout, x_TD, states, captured.replay)


def shape_of(work: Pass) -> Shape:
    """The smallest shape that holds the pass."""
    rows = 1 << (len(work.tokens) - 1).bit_length()
    pages = max(len(span.pages) for span in work.spans)
    return Shape(rows, -(-pages // PAGES_STEP) * PAGES_STEP, tuple(work.tapped))


def single_rows(work: Pass, shape: Shape, spare_page: int) -> list[Span]:
    """Each row as a sequence of its own, and rows of the spare page up to `shape`."""
    rows = [Span(span.start + row, 1, span.pages) for span in work.spans for row in range(span.count)]
    return rows + [Span(0, 1, [spare_page])] * (shape.rows - len(rows))


def _nothing() -> None:
    pass
