"""What one rank tells of its progress: to the board, where its stamp is, to the log, and to the front.

Told by the thread that does the work, so it stops when the work stops.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

from firstlight.embedded.log import Log
from firstlight.embedded.messages import Stamp
from firstlight.embedded.worker import faults
from firstlight.embedded.worker.board import Board, OwnStamp, create

SEND_EVERY_S = 0.5


class Progress:
    """Phase, counter and steps of one rank. Without a board of the server's, `own` is on one that nobody reads."""

    def __init__(self, rank: int, log: Log, send: Callable[[Stamp], None], own: OwnStamp | None = None) -> None:
        self._rank = rank
        self._log = log
        self._send = send
        self._own = own or OwnStamp(Board(create(rank + 1)), rank)
        self._counter = (0, 0, "")
        self._sent_at = 0.0
        self._fault = faults.fault_of(rank)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A start-up phase: its begin and end go to the log, its begin to the front."""
        self.enter(name)
        began = time.monotonic()
        yield
        self._log.phase_ends(name, time.monotonic() - began)

    def enter(self, name: str) -> None:
        """Begin a phase that has no end of its own."""
        self._counter = (0, 0, "")
        self._own.enter(name)
        self._log.phase_begins(name)
        self._tell(time.monotonic())
        if self._fault is not None:
            self._fault.strikes(name)

    def count(self, done: int, total: int, unit: str) -> None:
        """`done` of `total` has been worked off; told twice a second and at the end."""
        self._counter = (done, total, unit)
        self._own.beat()
        now = time.monotonic()
        if done == total or now - self._sent_at >= SEND_EVERY_S:
            self._log.progress(self._own.phase, done, total, unit)
            self._tell(now)

    def say(self, text: str) -> None:
        """A sentence for people, in the log."""
        self._log.say("info", text)

    def beat(self) -> None:
        """One unit of work was done (cheap: called after every layer)."""
        self._own.beat()
        now = time.monotonic()
        if now - self._sent_at >= SEND_EVERY_S:
            self._tell(now)

    def stamp(self) -> Stamp:
        """The stamp as of now, for a message that carries one; a sign of life on the board too."""
        self._own.write()
        self._sent_at = time.monotonic()
        done, total, unit = self._counter
        steps, phase = self._own.steps, self._own.phase
        return Stamp(rank=self._rank, phase=phase, at=self._sent_at, steps=steps, done=done, total=total, unit=unit)

    def _tell(self, now: float) -> None:
        self._sent_at = now
        self._send(self.stamp())
