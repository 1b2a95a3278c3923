"""Which slots of the drafter's pages hold what it was told: pages are shared and used again without its doing."""

from collections.abc import Sequence

from firstlight.embedded.model.passes import PAGE
from firstlight.embedded.speculate.eagle_network import Slots


class LearntPages:
    """For each page how many of its slots, from the first on, were computed from the target's own states."""

    def __init__(self, pages: int) -> None:
        self._slots = bytearray(pages)

    def renew(self, slots: Slots) -> None:
        """These slots, and those behind them in their last page, are new: what they held is of no use."""
        for index in _touched(slots):
            page = slots.pages[index]
            self._slots[page] = min(self._slots[page], max(0, slots.start - index * PAGE))

    def complete(self, slots: Slots) -> None:
        """These slots were computed, as were those before them in their first page."""
        for index in _touched(slots):
            self._slots[slots.pages[index]] = min(PAGE, slots.start + slots.count - index * PAGE)

    def whole(self, pages: Sequence[int]) -> bool:
        return all(self._slots[page] == PAGE for page in pages)


def _touched(slots: Slots) -> range:
    return range(slots.start // PAGE, (slots.start + slots.count - 1) // PAGE + 1)
