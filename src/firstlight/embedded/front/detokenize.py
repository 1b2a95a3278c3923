"""From tokens back to text, piece by piece: whole characters only, and nothing that a stop string would take back."""

from collections.abc import Callable, Sequence

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a decoder shows for a character whose bytes have not all come."""

Decode = Callable[[list[int]], str]


class TextStream:
    """The text of one answer as it grows."""

    def __init__(self, decode: Decode, stops: Sequence[str]) -> None:
        self._decode = decode
        self._stops = stops
        self._tokens: list[int] = []
        self._context = 0
        """Tokens from here on are decoded together: some decoders need neighbours to place spaces."""
        self._shown = 0
        """Tokens up to here have become text."""
        self._held = ""
        self.stopped = False
        """A stop string was found; the answer ends before it."""

    def push(self, token: int) -> str:
        """Add a token; returns the text that is now certain."""
        self._tokens.append(token)
        text = self._decode(self._tokens[self._context :])
        if text.endswith(UNFINISHED):
            return ""
        return self._release(self._advance(text))

    def flush(self) -> str:
        """The end: whatever was held back."""
        rest = self._held + self._advance(self._decode(self._tokens[self._context :]))
        self._held = ""
        return rest

    def _advance(self, text: str) -> str:
        known = self._decode(self._tokens[self._context : self._shown])
        self._context, self._shown = self._shown, len(self._tokens)
        return text[len(known) :]

    def _release(self, fresh: str) -> str:
        """Give out all but what may be the beginning of a stop string."""
        text = self._held + fresh
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
