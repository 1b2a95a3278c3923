"""The pages of the KV cache: who holds which, and which hold the beginning of a text that another request can use.

A page is in exactly one state. *In use*: held by one or more sequences. *Kept*: held by nobody, but what it holds is
known, so it can be shared again until its memory is needed. *Free*: neither.

Full pages are known by what they hold and by what comes before them: a *prefix* is a number for a run of whole pages
of text, found by the prefix before it and the tokens after that. Numbers are never used twice and tokens are
compared themselves, not by a digest, so a page cannot be taken for another.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from firstlight.embedded.model.passes import PAGE

NO_PREFIX = 0
"""The prefix that holds no text."""


class Known(NamedTuple):
    """A page whose text is known, and the prefix that ends with it."""

    page: int
    prefix: int


class PagePool:
    """A fixed number of pages. Which are handed out is a matter of counting alone; the memory lies elsewhere."""

    def __init__(self, pages: int) -> None:
        self.total = pages
        self._holders = [0] * pages
        self._free = list(reversed(range(pages)))
        self._kept: OrderedDict[int, None] = OrderedDict()
        """Pages nobody holds but whose text is known, that used longest ago first."""
        self._known: dict[tuple[int, tuple[int, ...]], Known] = {}
        self._key: dict[int, tuple[int, tuple[int, ...]]] = {}
        """The key in `_known` of each page that is there."""
        self._prefixes = NO_PREFIX

    @property
    def available(self) -> int:
        """Pages that `take` could give."""
        return len(self._free) + len(self._kept)

    @property
    def used(self) -> int:
        """Pages that somebody holds."""
        return self.total - self.available

    def take(self, count: int) -> list[int]:
        """Pages for one holder, whatever they held before forgotten. Raises ValueError if there are too few."""
        if count > self.available:
            raise ValueError(f"{count} pages were asked for; {self.available} are available")
        pages = [self._free.pop() if self._free else self._forget_oldest() for _ in range(count)]
        for page in pages:
            self._holders[page] = 1
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """One more holder for pages that are in use or kept."""
        for page in pages:
            self._kept.pop(page, None)
            self._holders[page] += 1

    def release(self, pages: list[int]) -> None:
        """One holder fewer. The last of `pages` is forgotten first, for it is of no use without those before it."""
        for page in reversed(pages):
            self._holders[page] -= 1
            if self._holders[page]:
                continue
            if page in self._key:
                self._kept[page] = None
            else:
                self._free.append(page)

    def match(self, prefix: int, blocks: Iterable[tuple[int, ...]]) -> list[Known]:
        """The known pages that follow `prefix` with the text of `blocks`, one page's tokens each; they are not taken.

        Pages found are as good as used again: they are forgotten later than others.
        """
        found: list[Known] = []
        for block in blocks:
            known = self._known.get((prefix, block))
            if known is None:
                break
            found.append(known)
            prefix = known.prefix
        for known in reversed(found):
            if known.page in self._kept:
                self._kept.move_to_end(known.page)
        return found

    def remember(self, prefix: int, block: tuple[int, ...], page: int) -> int:
        """`page`, in use, holds the final keys and values of `block` after `prefix`; returns the longer prefix.

        If another page is known to hold the same, that one stays known and this one is free when it is let go.
        """
        key = (prefix, block)
        known = self._known.get(key)
        if known is None:
            self._prefixes += 1
            known = self._known[key] = Known(page, self._prefixes)
            self._key[page] = key
        return known.prefix

    def check(self, holders: Iterable[list[int]]) -> None:
        """Raise AssertionError unless every page is in one state and is held as often as `holders` say."""
        held = Counter(page for pages in holders for page in pages)
        states = Counter([*self._free, *self._kept, *held])
        for page in range(self.total):
            if states[page] != 1:
                raise AssertionError(f"page {page} is in {states[page]} states, not in one")
            if held[page] != self._holders[page]:
                raise AssertionError(f"page {page} has {held[page]} holders, but {self._holders[page]} are counted")
        if any(page in self._key for page in self._free) or any(page not in self._key for page in self._kept):
            raise AssertionError("a free page is known, or a kept one is not")
        if {known.page: key for key, known in self._known.items()} != self._key:
            raise AssertionError("the known pages do not agree with their keys")

    def _forget_oldest(self) -> int:
        page, _ = self._kept.popitem(last=False)
        del self._known[self._key.pop(page)]
        return page


class PageTable:
    """The pages of one sequence: position p lies in `pages[p // PAGE]`.

    If `ahead` is 1, what is kept for a position depends on the token after it too, as a drafter's keys may. A page is
    then known by its own tokens and the one after them.
    """

    def __init__(self, pool: PagePool, *, ahead: int = 0) -> None:
        self.pages: list[int] = []
        self._pool = pool
        self._ahead = ahead
        self._known = 0
        """Pages from the first on whose text the pool was told, or knew; together they are `_prefix`."""
        self._prefix = NO_PREFIX

    def missing(self, positions: int) -> int:
        """Pages that this many positions would need beyond those that are here."""
        return max(0, pages_for(positions) - len(self.pages))

    def reach(self, positions: int) -> bool:
        """Take the pages that this many positions need. False, and nothing taken, if the pool has too few."""
        missing = self.missing(positions)
        if missing > self._pool.available:
            return False
        self.pages += self._pool.take(missing)
        return True

    def shrink(self, positions: int) -> None:
        """Let go of pages beyond this many positions."""
        kept = pages_for(positions)
        self._pool.release(self.pages[kept:])
        del self.pages[kept:]

    def clear(self) -> None:
        """Let go of all pages."""
        self.shrink(0)
        self._known, self._prefix = 0, NO_PREFIX

    def reuse(self, tokens: list[int]) -> int:
        """Share known pages for the text behind the pages known here; returns how many positions they hold.

        The last token is never covered, for its scores are wanted.
        """
        found = self._pool.match(self._prefix, self._blocks(tokens, len(tokens) - 1))
        if not found:
            return 0
        pages, places = [known.page for known in found], slice(self._known, self._known + len(found))
        self._pool.share(pages)
        self._pool.release(self.pages[places])
        self.pages[places] = pages
        self._known, self._prefix = places.stop, found[-1].prefix
        return len(found) * PAGE

    def remember(self, tokens: list[int], cached: int) -> None:
        """The first `cached` of `tokens`, fewer than all, are final: their full pages may be shared from now on."""
        for block in self._blocks(tokens, cached):
            self._prefix = self._pool.remember(self._prefix, block, self.pages[self._known])
            self._known += 1

    def _blocks(self, tokens: list[int], positions: int) -> Iterator[tuple[int, ...]]:
        """By what the full pages among so many positions are known, from the first one not yet known on."""
        for page in range(self._known, positions // PAGE):
            yield tuple(tokens[page * PAGE : (page + 1) * PAGE + self._ahead])


def pages_for(positions: int) -> int:
    """Pages that hold this many positions."""
    return -(-positions // PAGE)
