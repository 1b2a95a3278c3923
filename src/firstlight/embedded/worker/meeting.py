"""Where the ranks of a server meet before each collective: on the board, so that nothing wrong is ever added up.

A rank stamps where it is and how much it brings, then marks the board with one word: how many collectives it has come
to, and a checksum of what this one is. It goes on when all marks are the same. So a rank that left a collective out,
or brings another shape, is found before its numbers meet the others', and is named from the stamps; the transport
itself (gloo, NCCL) would wait, add wrong numbers or end the process.
"""

import os
import time
import zlib

from firstlight.embedded.errors import Diverged
from firstlight.embedded.worker.board import Board, OwnStamp
from firstlight.embedded.worker.others import Others, named
from firstlight.embedded.worker.patience import Patience

SPINS = 200
"""Looks at the marks, each with a yield of the CPU, before the first sleep: some 100 µs, the time of a layer."""
NAP_S = 50e-6
NAPS = 50
"""Naps between two looks at whether the others are alive: some milliseconds."""
LONG_WAIT_S = 1.0
LONG_NAP_S = 2e-3
"""Who has waited for so long can come two milliseconds late, and should not look as if it computed."""
SETTLE_S = 0.5
COUNT = 1 << 31


class Meeting:
    """One rank's side of all meetings."""

    def __init__(self, board: Board, rank: int, stamp: OwnStamp, deadline_s: float) -> None:
        self.others = Others(board, rank)
        self._board = board
        self._stamp = stamp
        self._deadline_s = deadline_s
        self._count = 0

    def meet(self, what: str, size: int, deadline_s: float = 0.0) -> None:
        """Wait until all ranks have come to the same collective with as many bytes.

        Raises RankLost if one ends, or shows no progress for the deadline; Diverged if one is somewhere else.
        """
        self._count = (self._count + 1) % COUNT
        self._stamp.meet(what, size)
        kind = zlib.crc32(f"{self._stamp.number} {self._stamp.collective} {size} {what}".encode())
        mark = self._count << 32 | kind
        self._stamp.mark(mark)
        for _ in range(SPINS):
            if not self._missing(mark):
                return
            os.sched_yield()
        self._wait(mark, Patience(deadline_s or self._deadline_s))

    def _missing(self, mark: int) -> list[int]:
        """Who has not come yet. Raises Diverged. One who is further on has met us here, else it could not be."""
        missing = []
        for rank in self.others.ranks:
            theirs = self._board.entered(rank)
            if theirs == mark:
                continue
            ahead = _ahead(theirs, mark)
            if ahead == 0:
                raise self._diverged()
            if ahead < 0:
                missing.append(rank)
        return missing

    def _wait(self, mark: int, patience: Patience) -> None:
        while missing := self._missing(mark):
            self.others.check_alive()
            self._check_not_past(missing, mark)
            if patience.ended([self._board.read(rank).steps for rank in missing]):
                raise self.others.silent(self.others.suspect(missing), patience.waited_s)
            nap_s = NAP_S if patience.waited_s < LONG_WAIT_S else LONG_NAP_S
            for _ in range(NAPS):
                time.sleep(nap_s)
                if not self._missing(mark):
                    return

    def _check_not_past(self, missing: list[int], mark: int) -> None:
        """A rank that is in a later place without having met us here has left this collective out."""
        mine = (self._stamp.number, self._stamp.collective)
        for rank in missing:
            stamp = self._board.read(rank)
            if (stamp.number, stamp.collective) > mine and _ahead(self._board.entered(rank), mark) < 0:
                raise self._diverged()

    def _diverged(self) -> Diverged:
        """The sentence that says who is where; ranks still on their way get a moment to come."""
        self._settle()
        groups: dict[str, list[int]] = {}
        for rank in range(self._board.ranks):
            stamp = self._board.read(rank)
            with_size = f"{stamp.place} with {stamp.size} bytes" if stamp.collective else stamp.place
            groups.setdefault(with_size, []).append(rank)
        sizes = sorted(len(ranks) for ranks in groups.values())
        alone = [ranks for ranks in groups.values() if len(ranks) < sizes[-1]]
        verdict = f"; {named(alone[0])} left something out or did it twice" if len(alone) == 1 else ""
        places = ", ".join(f"{named(ranks)} at {place}" for place, ranks in groups.items())
        return Diverged(f"the ranks do not do the same work: {places}{verdict}")

    def _settle(self) -> None:
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until:
            counts = {self._board.entered(rank) >> 32 for rank in range(self._board.ranks)}
            if len(counts) == 1:
                return
            time.sleep(0.01)


def _ahead(theirs: int, mine: int) -> int:
    """By how many collectives another is further on, where counts begin again after the last."""
    return ((theirs >> 32) - (mine >> 32) + COUNT // 2) % COUNT - COUNT // 2
