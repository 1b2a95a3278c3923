"""Where the rows of a pass stand, as tensors: for the torch path, on any device."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.embedded.model.passes import PAGE, Span


@dataclass(frozen=True)
class Layout:
    """The same for every layer. T rows of the pass, B sequences, C rows of the longest of them, P pages.

    The rows of several sequences are padded to a rectangle (B, C) for attention; `cell_T` is each row's place in it.
    """

    position_T: Tensor
    page_T: Tensor
    slot_T: Tensor
    cell_T: Tensor
    table_BP: Tensor
    query_position_BC: Tensor

    @classmethod
    def of(cls, spans: Sequence[Span], *, pages: int = 0, device: torch.device | None = None) -> "Layout":
        """`pages` is the least width of the page tables."""
        longest = max(span.count for span in spans)
        width = max(pages, *(len(span.pages) for span in spans))
        positions: list[int] = []
        page_of_row: list[int] = []
        cells: list[int] = []
        table = [[*span.pages, *[0] * (width - len(span.pages))] for span in spans]
        padded: list[list[int]] = []
        for index, span in enumerate(spans):
            own = range(span.start, span.start + span.count)
            positions += own
            page_of_row += [span.pages[position // PAGE] for position in own]
            cells += range(index * longest, index * longest + span.count)
            padded.append([*own, *[0] * (longest - span.count)])
        return cls(
            position_T=torch.tensor(positions, device=device),
            page_T=torch.tensor(page_of_row, device=device),
            slot_T=torch.tensor([position % PAGE for position in positions], device=device),
            cell_T=torch.tensor(cells, device=device),
            table_BP=torch.tensor(table, device=device),
            query_position_BC=torch.tensor(padded, device=device),
        )

    @property
    def rectangle(self) -> tuple[int, int]:
        """B and C."""
        sequences, rows = self.query_position_BC.shape
        return sequences, rows

    def mask(self, window: int) -> Tensor:
        """Which positions each query sees (B, 1, C, S): up to its own, and with a window only the last of them."""
        key_S = torch.arange(self.table_BP.shape[1] * PAGE, device=self.table_BP.device)
        query_BC1 = self.query_position_BC[:, :, None]
        seen = key_S <= query_BC1
        if window:
            seen &= key_S > query_BC1 - window
        return seen[:, None]

    def tensors(self) -> tuple[Tensor, ...]:
        """All of it, for a copy into tensors of the same shapes."""
        return (
            self.position_T,
            self.page_T,
            self.slot_T,
            self.cell_T,
            self.table_BP,
            self.query_position_BC,
        )
