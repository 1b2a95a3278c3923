"""Where the rows of one run stand: plain numbers that C reads in place."""

from array import array
from collections.abc import Sequence
from ctypes import addressof
from typing import Protocol

from firstlight.embedded.kernels.structures import RowsHeader


class SpanLike(Protocol):
    """Rows of one sequence as model/passes.py has them: `count` from position `start`; `pages` is its page table."""

    @property
    def start(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def pages(self) -> Sequence[int]: ...


class Rows:
    """The rows of one run, those of one sequence after those of another."""

    def __init__(
        self, count: int, positions: "array[int]", sequences: "array[int]", tables: "array[int]", starts: "array[int]"
    ):
        """All arrays of int32: position and sequence of each row, the page tables in a row, and where each begins."""
        self.count = count
        self._kept = (positions, sequences, tables, starts)
        addresses = [numbers.buffer_info()[0] for numbers in self._kept]
        self._header = RowsHeader(count, *addresses, len(starts) - 1)
        self.address = addressof(self._header)

    @classmethod
    def of(cls, spans: Sequence[SpanLike]) -> "Rows":
        positions, sequences, tables, starts = array("i"), array("i"), array("i"), array("i", [0])
        for index, span in enumerate(spans):
            positions.extend(range(span.start, span.start + span.count))
            sequences.extend((index,) * span.count)
            tables.extend(array("i", span.pages))
            starts.append(len(tables))
        return cls(len(positions), positions, sequences, tables, starts)

    @classmethod
    def without_pages(cls, count: int) -> "Rows":
        """For programs that need neither positions nor pages."""
        return cls(count, array("i"), array("i"), array("i"), array("i", [0]))
