"""One request inside the worker: its tokens, how far the cache has them, and when it ends."""

from collections.abc import Iterable
from typing import Protocol

from torch import Tensor

from firstlight.embedded.messages import Submit
from firstlight.embedded.model.passes import CHUNK
from firstlight.embedded.speculate.protocol import Chosen, Sampler
from firstlight.embedded.worker.pages import PageTable


class Taps(Protocol):
    """Where the states that a request asked for go; see worker/taps.py."""

    @property
    def states(self) -> tuple[int, ...]:
        """Numbers of the states wanted."""
        ...

    def add(self, start: int, states: dict[int, Tensor]) -> None:
        """Rows (rows, D) of positions `start`… for each number; positions seen before (pre-emption) come again."""
        ...


class Sequence:
    """Prompt and answer of one request, from its arrival to its end."""

    def __init__(
        self, submit: Submit, *, max_tokens: int, sampler: Sampler, table: PageTable, taps: Taps | None = None
    ) -> None:
        self.request = submit.request
        self.tokens = list(submit.prompt)
        self.cached = 0
        """Positions whose keys and values are in the pages."""
        self.table = table
        self.sampler = sampler
        self.taps = taps
        self.finish = ""
        self.started = False
        """Whether it ever had a seat."""
        self._length = len(submit.prompt) + max_tokens
        self._prompt = len(submit.prompt)
        self._stop_tokens = frozenset(submit.stop_tokens)

    @property
    def pages(self) -> list[int]:
        """The page table, as drafters and passes want it."""
        return self.table.pages

    @property
    def left(self) -> int:
        """Tokens that may still be generated."""
        return self._length - len(self.tokens)

    @property
    def decoding(self) -> bool:
        """Whether all but the last token, a generated one, are in the pages: a row for it gives the next."""
        return len(self.tokens) > self._prompt and self.cached == len(self.tokens) - 1

    @property
    def answering(self) -> bool:
        """Whether the next position to compute is a generated token's, which a decode pass computed the first time.

        It is computed so again after pre-emption: then the pages hold the same, bit for bit.
        """
        return self.cached >= self._prompt

    def chunk_end(self, most_rows: int) -> int:
        """Up to which position the next pass goes that brings the pages up to date.

        The last generated token is left to the decode pass that gives the next.
        """
        if self.answering:
            return min(len(self.tokens) - 1, self.cached + most_rows)
        return min(self._prompt, (self.cached // CHUNK + 1) * CHUNK)

    def extend(self, chosen: Iterable[Chosen]) -> list[Chosen]:
        """Take tokens up to the one that ends the request; returns those taken."""
        taken = []
        for choice in chosen:
            taken.append(choice)
            self.tokens.append(choice.token)
            if choice.token in self._stop_tokens:
                self.finish = "stop"
            elif not self.left:
                self.finish = "length"
            if self.finish:
                break
        return taken

    def lose_pages(self) -> None:
        """Let go of all pages; everything has to be computed again."""
        self.table.clear()
        self.cached = 0
