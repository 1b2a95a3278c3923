"""Reads of /proc that can block, made where they cannot block the watcher.

A command line, a memory map: reading these takes the lock of the target's address space, and waits as long as a
thread of the target does that holds it in the kernel (state D on a dead network disk, a GPU driver that hangs).
"""

import queue
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from firstlight.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

STUCK_S = 2.0
"""A read that takes longer is given up, together with its thread."""
THREADS_LOST_MAX = 8
"""After so many given up, no more are started: what is not read then stays unread."""


class Reader(Generic[K, V]):
    """Calls `read(key)` in a thread of its own. Errors of the operating system are no answer."""

    def __init__(self, read: Callable[[K], V], clock: Clock, name: str) -> None:
        self._read = read
        self._clock = clock
        self._name = name
        self._answers: queue.SimpleQueue[tuple[K, V | None]] = queue.SimpleQueue()
        self._questions: queue.SimpleQueue[K | None] = queue.SimpleQueue()
        self._asked: dict[K, float] = {}
        self._threads_lost = 0
        self.stuck: set[K] = set()
        self._start_thread()

    def ask(self, key: K) -> None:
        """Have it read, unless it is being read already, or never came back."""
        if key not in self._asked and key not in self.stuck and self._threads_lost < THREADS_LOST_MAX:
            self._asked[key] = self._clock.monotonic()
            self._questions.put(key)

    def answers(self, wait_s: float = 0.0) -> dict[K, V]:
        """What has been read since the last call; waits for all that was asked, but no longer than `wait_s`."""
        found: dict[K, V] = {}
        ends = self._clock.monotonic() + wait_s
        while self._asked:
            try:
                key, value = self._answers.get(timeout=max(0.0, ends - self._clock.monotonic()) or 1e-6)
            except queue.Empty:
                break
            self._asked.pop(key, None)
            if value is not None:
                found[key] = value
        self._give_up()
        return found

    @property
    def waiting(self) -> bool:
        """True while something that was asked has not been read."""
        return bool(self._asked)

    def close(self) -> None:
        """Let the thread end."""
        self._questions.put(None)

    def _give_up(self) -> None:
        """Abandon a thread that sits in one read for too long, and go on with a new one."""
        oldest = next(iter(self._asked), None)
        if oldest is None or self._clock.monotonic() - self._asked[oldest] < STUCK_S:
            return
        self.stuck.add(oldest)
        self._threads_lost += 1
        waiting = [key for key in self._asked if key != oldest]
        self._asked.clear()
        self._start_thread()
        for key in waiting:
            self.ask(key)

    def _start_thread(self) -> None:
        self._questions = queue.SimpleQueue()
        self._answers = queue.SimpleQueue()
        threading.Thread(
            target=self._run, args=(self._questions, self._answers), name=f"firstlight: {self._name}", daemon=True
        ).start()

    def _run(
        self, questions: "queue.SimpleQueue[K | None]", answers: "queue.SimpleQueue[tuple[K, V | None]]"
    ) -> None:
        while (key := questions.get()) is not None:
            try:
                answers.put((key, self._read(key)))
            except OSError:
                answers.put((key, None))
