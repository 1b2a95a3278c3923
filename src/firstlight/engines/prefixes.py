"""What others put in front of a server's lines: Ray, torchrun, mpirun, Slurm, containers, the journal.

A line may carry several of them, the outermost first; what stands behind the last one is the server's own. Who
carries a line (a container, a unit, a pod) is left out. Who speaks is kept, as the innermost one that tells has it.
"""

import re
from typing import NamedTuple

from firstlight.engines.ranks import Sizes, rank_of
from firstlight.engines.table import Prefix

MOST = 5
"""Prefixes of one line that are looked for."""

_ASCII = tuple(map(chr, range(128)))


class Speaker(NamedTuple):
    """Who a line says that it is from; `pid` is 0 and `rank` -1 where it does not say."""

    source: str = ""
    pid: int = 0
    rank: int = -1


NOBODY = Speaker()


class _Compiled(NamedTuple):
    has: str
    pattern: re.Pattern[str]
    label: str


class Prefixes:
    """The prefixes of a table, found by the first character of a line."""

    def __init__(self, prefixes: tuple[Prefix, ...], sizes: Sizes) -> None:
        self._sizes = sizes
        compiled = [
            (re.compile(one.begins), _Compiled(one.has, re.compile(one.pattern), one.label)) for one in prefixes
        ]
        self._by_first = {
            first: found
            for first in _ASCII
            if (found := tuple(prefix for begins, prefix in compiled if begins.match(first)))
        }

    def of(self, text: str) -> tuple[Speaker, int]:
        """Who speaks, and where the server's own words begin."""
        at, speaker = 0, NOBODY
        for _ in range(MOST):
            match, label = self._match(text, at)
            if match is None:
                break
            at = match.end()
            if match.lastindex:
                speaker = self._speaker(match.groupdict(), label) or speaker
        return speaker, at

    def _match(self, text: str, at: int) -> tuple[re.Match[str] | None, str]:
        for prefix in self._by_first.get(text[at : at + 1], ()):
            if prefix.has in text and (match := prefix.pattern.match(text, at)):
                return match, prefix.label
        return None, ""

    def _speaker(self, groups: dict[str, str | None], label: str) -> Speaker | None:
        told = groups.get("source")
        source = label + told if told else ""
        pid, rank = groups.get("pid"), groups.get("rank")
        if not (source or pid or rank):
            return None
        known = int(rank) if rank else rank_of(source, self._sizes) if source else -1
        return Speaker(source, int(pid or 0), known)
