"""How the passes that rank 0 decides on get to the other ranks: in order, none lost, none twice, no wait without end.

On each socket a frame is a header (four bytes of length, one of kind, eight of the pass's number) and, for a pass,
its MessagePack. There are no idle messages: who waits looks at the other's stamp on the board, which the working
thread renews at least every second, idle or not.
"""

import select
import socket
import struct
import time
from collections.abc import Sequence

import msgspec

from firstlight.embedded.errors import Diverged, RankLost
from firstlight.embedded.model.passes import Pass
from firstlight.embedded.worker.board import OwnStamp
from firstlight.embedded.worker.others import Others
from firstlight.embedded.worker.patience import Patience

HEADER = struct.Struct(">IBq")
PASS, STOP = 1, 2
IDLE_S = 1.0
ROUND_S = 3 * IDLE_S
LEADER_GRACE_S = 2.0
"""Rank 0 may itself wait for another rank for the deadline, and then knows better than those who wait for rank 0."""
LOOK_S = 0.25
END_SEEN_S = 1.0
"""How long a process whose socket was closed may take to end."""


class Leader:
    """Rank 0's ends."""

    def __init__(self, socks: Sequence[socket.socket], others: Others, stamp: OwnStamp, deadline_s: float) -> None:
        self._socks = dict(enumerate(socks, start=1))
        self._others = others
        self._stamp = stamp
        self._deadline_s = deadline_s
        self._patience = {rank: Patience(deadline_s, pause_s=ROUND_S) for rank in self._socks}
        self._sent = 0
        for sock in socks:
            sock.settimeout(deadline_s)

    def send(self, work: Pass) -> None:
        """Hand a pass to every other rank. Raises RankLost if one has ended, or takes nothing for the deadline."""
        self._sent = work.number
        self._to_all(PASS, work.number, msgspec.msgpack.encode(work))

    def stop(self) -> None:
        """There will be no more passes."""
        self._to_all(STOP, self._sent, b"")

    def check(self) -> None:
        """For rounds without a pass, at least one a second: raises RankLost if a rank has ended or stamps no more."""
        self._stamp.rest()
        self._others.check_alive()
        for rank in self._socks:
            if self._patience[rank].ended(self._others.board.read(rank).serial):
                raise self._others.silent(rank, self._patience[rank].waited_s)

    def _to_all(self, kind: int, number: int, body: bytes) -> None:
        frame = HEADER.pack(len(body), kind, number) + body
        for rank, sock in self._socks.items():
            try:
                sock.sendall(frame)
            except TimeoutError:
                raise self._others.silent(rank, self._deadline_s) from None
            except OSError:
                raise _gone(self._others, rank) from None


class Follower:
    """The end of another rank."""

    def __init__(self, sock: socket.socket, others: Others, stamp: OwnStamp, deadline_s: float) -> None:
        self._sock = sock
        self._others = others
        self._stamp = stamp
        self._deadline_s = deadline_s
        self._due: int | None = None
        """The number of the next pass; the first may have any."""

    def receive(self) -> Pass | None:
        """The next pass; None if there are no more. Stamps every second while it waits.

        Raises RankLost if rank 0 has ended or shows no life for the deadline, Diverged if a pass is missing or comes
        twice.
        """
        self._stamp.rest()
        length, kind, number = HEADER.unpack(self._read(HEADER.size))
        if kind == STOP:
            return None
        due, self._due = self._due, number + 1
        if due is not None and number != due:
            raise Diverged(f"rank {self._others.rank} was sent pass {number} by rank 0 where pass {due} was due")
        return msgspec.msgpack.decode(self._read(length), type=Pass)

    def _read(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            self._await_bytes()
            try:
                part = self._sock.recv(size - len(got))
            except OSError:
                part = b""
            if not part:
                raise _gone(self._others, 0)
            got += part
        return bytes(got)

    def _await_bytes(self) -> None:
        """Until there is something to read. Rank 0 may be busy or idle for as long as it stamps."""
        patience = Patience(self._deadline_s + LEADER_GRACE_S)
        stamped_at = time.monotonic()
        while not select.select([self._sock], [], [], LOOK_S)[0]:
            if patience.ended(self._others.board.read(0).serial):
                raise self._others.silent(self._others.suspect([0]), patience.waited_s)
            if time.monotonic() - stamped_at > IDLE_S - LOOK_S:
                stamped_at = time.monotonic()
                self._stamp.rest()


def _gone(others: Others, rank: int) -> RankLost:
    """The sentence about a rank whose socket is closed, which it usually is because the process ends."""
    try:
        others.check_alive(END_SEEN_S)
    except RankLost as lost:
        return lost
    return others.lost(rank, "has closed its socket")
