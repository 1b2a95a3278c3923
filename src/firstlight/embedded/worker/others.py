"""The other ranks as one rank sees them: who has ended or is stopped, and the one sentence that says so."""

import contextlib
import os
import select
from collections.abc import Iterable, Sequence
from pathlib import Path

from firstlight.embedded.errors import RankLost
from firstlight.embedded.worker.board import Board, RankStamp

STOPPED = {"T", "t"}


class Others:
    """Peers of a rank, on the same machine."""

    def __init__(self, board: Board, rank: int) -> None:
        self.board = board
        self.rank = rank
        self.ranks = [other for other in range(board.ranks) if other != rank]
        self._unwatched = set(self.ranks)
        self._watched: dict[int, int] = {}
        """By pidfd, which becomes readable when the process ends (pidfd_open(2))."""
        self._poll = select.poll()
        self._gone: set[int] = set()

    def check_alive(self, within_s: float = 0.0) -> None:
        """Raises RankLost if another rank has ended, or does within this time."""
        for rank in list(self._unwatched):
            self._watch(rank)
        self._gone.update(self._watched[fd] for fd, _ in self._poll.poll(within_s * 1000))
        if self._gone:
            raise self.lost(min(self._gone), "has ended")

    def lost(self, rank: int, how: str) -> RankLost:
        """The sentence about a rank that is waited for in vain."""
        stamp = self.board.read(rank)
        if not stamp.serial:
            return RankLost(f"rank {rank} has not begun; {self._waiting(rank)}")
        seen = f"last seen {stamp.age_s:.1f} s ago in phase {stamp.phase}"
        at = f" at {stamp.place}" if stamp.what else ""
        return RankLost(f"rank {rank} (pid {stamp.pid}) {how}, {seen}{at}; {self._waiting(rank)}")

    def silent(self, rank: int, waited_s: float) -> RankLost:
        """The sentence about a rank that lives and does not come."""
        pid = self.board.read(rank).pid
        if pid and _state(pid) in STOPPED:
            return self.lost(rank, f"is stopped and was waited for {waited_s:.0f} s")
        return self.lost(rank, f"has made no progress for {waited_s:.0f} s")

    def suspect(self, among: Iterable[int]) -> int:
        """Who is to blame for a wait for `among`: any rank that is stopped, else the one that is silent longest."""
        stamps = {rank: self.board.read(rank) for rank in self.ranks}
        stopped = [rank for rank, stamp in stamps.items() if stamp.pid and _state(stamp.pid) in STOPPED]
        return min(stopped or among, key=lambda rank: stamps[rank].at_ns)

    def _watch(self, rank: int) -> None:
        pid = self.board.read(rank).pid
        if not pid:
            return
        self._unwatched.discard(rank)
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._gone.add(rank)
        except OSError:  # a sandbox that forbids it: then closed sockets and deadlines tell
            return
        else:
            self._watched[fd] = rank
            self._poll.register(fd, select.POLLIN)

    def _waiting(self, lost: int) -> str:
        """Who waits, and where: this rank, and the others that are in the same place."""
        mine = self.board.read(self.rank)
        with_me = [rank for rank in self.ranks if rank != lost and _same(self.board.read(rank), mine)]
        waiting = sorted([self.rank, *with_me])
        return f"{named(waiting)} {'waits' if len(waiting) == 1 else 'wait'} at {mine.place}"


def named(ranks: Sequence[int]) -> str:
    """`rank 2`, or `ranks 0, 1 and 3`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _same(one: RankStamp, other: RankStamp) -> bool:
    return (one.number, one.place) == (other.number, other.place)


def _state(pid: int) -> str:
    """The state letter of a process (proc_pid_stat(5)); empty if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
