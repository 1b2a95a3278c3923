"""The worker's stamp of real progress: made by the thread that does the work, so it stops when the work stops."""

import contextlib
import time
from collections.abc import Callable, Iterator

from firstlight.embedded.log import Log
from firstlight.embedded.messages import Stamp

SEND_EVERY_S = 0.5


class Progress:
    """Phase, counter and stamp of one rank; told to the log and, through `send`, to the front."""

    def __init__(self, rank: int, log: Log, send: Callable[[Stamp], None]) -> None:
        self._rank = rank
        self._log = log
        self._send = send
        self._phase = ""
        self._counter = (0, 0, "")
        self._steps = 0
        self._sent_at = 0.0

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A start-up phase: its begin and end go to the log, its begin to the front."""
        self.enter(name)
        began = time.monotonic()
        yield
        self._log.phase_ends(name, time.monotonic() - began)

    def enter(self, name: str) -> None:
        """Begin a phase that has no end of its own."""
        self._phase = name
        self._counter = (0, 0, "")
        self._log.phase_begins(name)
        self._tell(time.monotonic())

    def count(self, done: int, total: int, unit: str) -> None:
        """`done` of `total` has been worked off; told twice a second and at the end."""
        self._counter = (done, total, unit)
        self._steps += 1
        now = time.monotonic()
        if done == total or now - self._sent_at >= SEND_EVERY_S:
            self._log.progress(self._phase, done, total, unit)
            self._tell(now)

    def beat(self) -> None:
        """One unit of work was done (cheap: called after every layer)."""
        self._steps += 1
        now = time.monotonic()
        if now - self._sent_at >= SEND_EVERY_S:
            self._tell(now)

    def stamp(self) -> Stamp:
        """The stamp as of now, for a message that carries one."""
        self._sent_at = time.monotonic()
        done, total, unit = self._counter
        return Stamp(
            rank=self._rank, phase=self._phase, at=self._sent_at, steps=self._steps, done=done, total=total, unit=unit
        )

    def _tell(self, now: float) -> None:
        self._sent_at = now
        self._send(self.stamp())
