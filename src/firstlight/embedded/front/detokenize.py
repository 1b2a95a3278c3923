"""From tokens back to text, piece by piece: whole characters only, and nothing that a stop string would take back."""

from collections.abc import Callable, Sequence

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a decoder shows for a character whose bytes have not all come."""
MOST_PENDING = 8
"""Tokens that may wait for the rest of a character, which has four bytes at most; then they are shown as they are."""

Decode = Callable[[list[int]], str]


class TextStream:
    """The text of one answer as it grows; each token costs the same, however long the answer."""

    def __init__(self, decode: Decode, stops: Sequence[str]) -> None:
        self._decode = decode
        self._stops = stops
        self._context: list[int] = []
        """Tokens that have become text last: some decoders need neighbours to place spaces."""
        self._pending: list[int] = []
        """Tokens that have not become text yet."""
        self._held = ""
        self.length = 0
        """Characters that are certain, held back ones included."""
        self.stopped = False
        """A stop string was found; the answer ends before it."""

    @property
    def shown(self) -> int:
        """Characters given out."""
        return self.length - len(self._held)

    def push(self, token: int) -> str:
        """Add a token; returns the text that is now certain."""
        self._pending.append(token)
        text = self._decode(self._context + self._pending)
        if text.endswith(UNFINISHED) and len(self._pending) <= MOST_PENDING:
            return self._release(self._all_but_last(text))
        return self._release(self._advance(text, len(self._pending)))

    def flush(self) -> str:
        """The end: whatever was held back."""
        rest = self._held + self._advance(self._decode(self._context + self._pending), len(self._pending))
        self._held = ""
        return rest

    def _all_but_last(self, text: str) -> str:
        """The text before an unfinished token, once that token has shown that it completes none of it.

        Bytes that complete a character change it, and leave as many characters as there were; bytes that do not,
        leave it as it was, for ever, and add one.
        """
        before = self._decode(self._context + self._pending[:-1])
        if len(self._pending) == 1 or len(text) == len(before) or not text.startswith(before):
            return ""
        return self._advance(before, len(self._pending) - 1)

    def _advance(self, text: str, count: int) -> str:
        """`count` pending tokens have become the text that `text` has beyond its context."""
        fresh = text[len(self._decode(self._context)) :] if self._context else text
        self._context, self._pending = self._pending[:count] or self._context, self._pending[count:]
        self.length += len(fresh)
        return fresh

    def _release(self, fresh: str) -> str:
        """Give out all but what may be the beginning of a stop string."""
        if not self._stops:
            return fresh
        text = self._held + fresh
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            self.length -= len(text) - min(found)
            self._held = ""
            return text[: min(found)]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
