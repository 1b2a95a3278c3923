"""Which log text is news: a line that only repeats, digits aside, is silence."""

import re
from collections import OrderedDict

from firstlight.core.vocabulary import Phase

SEEN_MAX = 4096
"""Texts remembered per phase, the oldest forgotten first: at most some 2 MB whatever the server prints."""
TEXT_MAX = 400
"""Characters of a line that are compared."""

_WORD = re.compile(r"\w+")


def skeleton(text: str) -> str:
    """The words of a line that hold letters alone.

    Counts, times, hashes, sizes, ports, file numbers, progress bars and spinners all go, so that
    "[12:00:07] Waiting for 1 core engine proc(s) ... 20s" is the same as a minute ago.
    """
    return " ".join(word.lower() for word in _WORD.findall(text[:TEXT_MAX]) if word.isalpha())


class Novelty:
    """Remembers, for each phase, which texts were said in it. A phase that comes back keeps its memory."""

    def __init__(self) -> None:
        self._seen: dict[Phase, OrderedDict[str, None]] = {}

    def is_new(self, phase: Phase, text: str) -> bool:
        """Whether this phase has not yet heard such a line; from now on it has."""
        words = skeleton(text)
        if not words:
            return False
        seen = self._seen.setdefault(phase, OrderedDict())
        if words in seen:
            seen.move_to_end(words)
            return False
        seen[words] = None
        if len(seen) > SEEN_MAX:
            seen.popitem(last=False)
        return True
