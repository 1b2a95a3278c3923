"""Which log text is news: a line that only repeats, digits aside, is silence."""

import re
from collections import OrderedDict

from firstlight.core.vocabulary import Phase

SEEN_MAX = 4096
"""Texts remembered per phase, the oldest forgotten first: at most some 2 MB whatever the server prints."""
TEXT_MAX = 400
"""Characters of a line that are compared."""

_TOKEN = re.compile(r"[\w-]+")
_DIGIT = re.compile(r"\d")
_HEX = re.compile(r"[a-f]{4,}")


def skeleton(text: str) -> str:
    """The words of a line that hold letters alone, and are none of an identifier.

    Counts, times, hashes, sizes, ports, file numbers, progress bars and spinners all go, so that
    "[12:00:07] Waiting for 1 core engine proc(s) ... 20s" is the same as a minute ago. So does whatever a hyphen
    joins to a digit (a UUID has groups of letters alone) or could be hex, and one or two Latin letters, which as
    often count something as they say something.
    """
    tokens = (token for token in _TOKEN.findall(text[:TEXT_MAX].lower()) if not _DIGIT.search(token))
    return " ".join(word for token in tokens for word in token.split("-") if _tells(word))


def _tells(word: str) -> bool:
    return word.isalpha() and not _HEX.fullmatch(word) and not (word.isascii() and len(word) < 3)


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
