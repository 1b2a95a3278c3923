"""The drafter that needs no training: what followed the last few tokens when they stood here before.

Also known as prompt lookup. It pays where answers repeat their prompt: edits of code, summaries, tables.
"""

from torch import Tensor

from firstlight.embedded.speculate.protocol import Drafted

LONGEST, SHORTEST = 5, 2
"""Tokens that must agree: the longest match is tried first."""


class Index:
    """Where each run of tokens was last seen, for one sequence; every token is looked at once.

    Runs are known by their hashes: should two ever collide, a guess is wrong, and nothing else.
    """

    def __init__(self) -> None:
        self._after: dict[int, int] = {}
        self._seen = 0

    def follow(self, tokens: list[int]) -> int | None:
        """The position that followed the latest, longest earlier match of the end of `tokens`."""
        end = len(tokens)
        for position in range(self._seen, end):
            for length in _lengths(position):
                self._after[hash(tuple(tokens[position - length : position]))] = position
        self._seen = end
        found = (self._after.get(hash(tuple(tokens[end - length :]))) for length in _lengths(end))
        return next((position for position in found if position is not None), None)


class NgramDrafter:
    """Proposes what stood behind the same tokens before. It needs no states, and shared pages do not concern it."""

    taps: tuple[int, ...] = ()
    drops_last_page = False

    def __init__(self) -> None:
        self._indices: dict[Drafted, Index] = {}

    def propose(self, sequences: list[Drafted], counts: list[int]) -> list[list[int]]:
        return [
            self._guess(sequence, count) if count else [] for sequence, count in zip(sequences, counts, strict=True)
        ]

    def learn(self, sequence: Drafted, start: int, states: dict[int, Tensor]) -> None:
        """Nothing: the tokens are read when a guess is asked for."""

    def forget(self, sequence: Drafted) -> None:
        self._indices.pop(sequence, None)

    def _guess(self, sequence: Drafted, count: int) -> list[int]:
        tokens = sequence.tokens
        position = self._indices.setdefault(sequence, Index()).follow(tokens)
        if position is None:
            return []
        known = tokens[position : position + count]
        # Where the match reaches to the end, its tokens repeat: go on repeating them.
        return [known[at % len(known)] for at in range(count)]


def _lengths(end: int) -> range:
    """Lengths of the runs that may end at `end`, longest first."""
    return range(min(LONGEST, end), SHORTEST - 1, -1)
