"""All workers together: what each said last, whether one seems stuck, and, once one has ended, which one it was.

The end of one is the end of all. The ranks wait for each other all the time, so when one goes, the others fail soon
after; what they say then is a consequence. First comes a rank that a signal killed, then one that ended without a
word, then the one that spoke first of what went wrong (the ranks agree on that through the board).
"""

import asyncio
import time
from collections.abc import Callable

from firstlight.embedded.errors import PeerGone
from firstlight.embedded.front.aside import aside
from firstlight.embedded.front.wire import Wire
from firstlight.embedded.front.worker_process import WorkerProcess, Workers
from firstlight.embedded.log import Log
from firstlight.embedded.messages import Failed, FromWorker, Ready, Stamp, Step, ToWorker
from firstlight.embedded.worker.board import Board, RankStamp

EXIT_DEADLINE_S = 3.0
TOGETHER_S = 0.5
"""Ranks that end so soon after the first are looked at together with it."""


class Member:
    """One rank."""

    def __init__(self, process: WorkerProcess, board: Board) -> None:
        self.process = process
        self.rank = process.rank
        self.stamp = Stamp(rank=self.rank, phase="spawn", at=time.monotonic(), steps=0)
        self.heard = time.monotonic()
        self.last_words = ""
        self.wire: Wire | None = None
        self._board = board

    @property
    def shared_stamp(self) -> RankStamp:
        """What it says to its peers; serial 0 if nothing yet."""
        return self._board.read(self.rank)

    @property
    def stamp_age_s(self) -> float:
        """Seconds since its working thread last showed progress."""
        shared = self.shared_stamp
        at = max(self.stamp.at, shared.at_ns / 1e9 if shared.serial else 0.0)
        return max(0.0, time.monotonic() - at)

    @property
    def gone(self) -> bool:
        return self.wire is not None and self.wire.closed.done()

    def doing(self) -> str:
        """What it was at, for those who ask why nothing moves."""
        shared = self.shared_stamp
        if not shared.serial or not shared.what:
            return f"phase={self.stamp.phase}"
        return f"phase={shared.phase}, {shared.place}"


class Crew:
    """Follows all ranks from their start to the first end."""

    def __init__(self, workers: Workers, log: Log, stall_after_s: float) -> None:
        self.members = [Member(process, workers.board) for process in workers.processes]
        self.first = self.members[0]
        self.ready: Ready | None = None
        self.became_ready = asyncio.Event()
        self.take: Callable[[FromWorker], None] = lambda _: None
        """Who else wants to know what rank 0 says."""
        self._board = workers.board
        self._log = log
        self._stall_after_s = stall_after_s
        self._someone_failed = asyncio.Event()

    def stall(self, in_flight: int) -> str:
        """Why workers that should serve seem not to; empty if they do."""
        slowest = max(self.members, key=lambda member: member.stamp_age_s)
        age = slowest.stamp_age_s
        if self.ready is None or age <= self._stall_after_s:
            return ""
        return f"{slowest.process.name} has made no progress for {age:.0f} s; {requests(in_flight)} in flight"

    def say_silence(self, in_flight: int) -> None:
        """A silence that looks like a stall is said in the log and waited out."""
        now = time.monotonic()
        for member in self.members:
            if now - max(member.heard, now - member.stamp_age_s) > self._stall_after_s + 1:
                member.heard = now
                still = f"{member.process.name} is still in phase={member.stamp.phase}"
                self._log.say("warning", self.stall(in_flight) or still)

    def send(self, message: ToWorker) -> None:
        """To rank 0, which decides for all."""
        if self.first.wire is not None:
            self.first.wire.send(message)

    async def follow(self) -> None:
        """Take messages until one rank ends, or says that it must."""
        for member in self.members:
            await self._connect(member)
        failing = asyncio.ensure_future(self._failing())
        closed = {member.wire.closed for member in self.members if member.wire is not None}
        try:
            await asyncio.wait({failing} | closed, return_when=asyncio.FIRST_COMPLETED)
        finally:
            failing.cancel()

    async def first_end(self, in_flight: int) -> PeerGone:
        """Which rank ended first, how and at what, and what the others waited for, in one sentence."""
        if len(self.members) > 1:
            await asyncio.sleep(TOGETHER_S)
        culprit = min((member for member in self.members if member.gone or member.last_words), key=self._order)
        name = f"{culprit.process.name} to end"
        how = await aside(lambda: culprit.process.wait(EXIT_DEADLINE_S), name=name, deadline_s=EXIT_DEADLINE_S + 1)
        how = _broken(culprit) or how or ("closed its socket" if culprit.gone else "failed") + " but lives on"
        others = [member for member in self.members if member is not culprit]
        at = culprit.doing() if others else f"phase={culprit.stamp.phase}"
        said = f"{culprit.process.name} {how} ({at}, {requests(in_flight)} in flight)"
        return PeerGone(said + self._why(culprit, others))

    @property
    def last_words(self) -> str:
        """What the rank that ended first said itself of why; empty if it could not."""
        ended = [member for member in self.members if member.gone or member.last_words]
        return min(ended, key=self._order).last_words if ended else ""

    def _why(self, culprit: Member, others: list[Member]) -> str:
        """What the one that ended says, or one that waited for it; else what the others were at, seen from here."""
        if not others:
            return ""
        if words := next((member.last_words for member in (culprit, *others) if member.last_words), ""):
            return f": {words}"
        return ". Meanwhile " + "; ".join(f"rank {member.rank} was at {member.doing()}" for member in others)

    def _order(self, member: Member) -> tuple[bool, bool, bool]:
        return not member.process.killed, bool(member.last_words), self._board.claimed != member.rank

    async def _connect(self, member: Member) -> None:
        member.wire = Wire(lambda message: self._take(member, message))
        wire = member.wire
        await asyncio.get_running_loop().create_connection(lambda: wire, sock=member.process.socket)

    async def _failing(self) -> None:
        await self._someone_failed.wait()

    def _take(self, member: Member, message: FromWorker) -> None:
        member.heard = time.monotonic()
        match message:
            case Step(stamp=stamp):
                member.stamp = stamp
            case Stamp():
                member.stamp = message
            case Ready() if member is self.first:
                self.ready = message
                self.became_ready.set()
            case Failed(message=text):
                member.last_words = text
                self._someone_failed.set()
        if member is self.first:
            self.take(message)


def requests(number: int) -> str:
    return f"{number} request" if number == 1 else f"{number} requests"


def _broken(member: Member) -> str:
    """What was wrong with what it said, if that is why it is no longer listened to."""
    why = member.wire.closed.result() if member.wire is not None and member.wire.closed.done() else ""
    return f"is no longer listened to: {why}" if why else ""
