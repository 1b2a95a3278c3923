"""What counts as a progress signal: counters of one process over a sliding window, each against its floor. Pure.

A signal is *strong* when the window as a whole is above the floor; it is dated by the last interval in the window
that was itself above the floor, so that silence is counted from where it began and not from where the window ends.
Below the floor lies what a stuck server does too: a thread that wakes to look at the clock, a keep-alive, a line
every ten seconds.

Some slow starts lie below it too, and nothing outside tells them from a heartbeat: 20 ms of CPU or one program of a
few milliseconds each second, and whatever passes through a unix socket, whose bytes no kernel counts, unless it is
kept: a megabyte costs less CPU and fewer wake-ups than a heartbeat. Two looks then decide, by stacks and by how far
files were read; where these stay the same as well, such a start is called a stall.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.process import ProcessSample
from firstlight.core.vocabulary import Signal
from firstlight.supervise.liveness.amounts import (
    Amount,
    Point,
    between_waits,
    carried,
    children_cpu,
    cpu,
    faulted,
    fetched,
    grown,
    read,
    written,
)
from firstlight.supervise.liveness.floors import Floors


def _counters(floors: Floors) -> tuple[tuple[Signal, Amount, float], ...]:
    return (
        (Signal.CPU, children_cpu, floors.children_cores),
        (Signal.READ, read, floors.bytes_s),
        (Signal.READ, fetched, floors.disk_bytes_s),
        (Signal.WRITE, written, floors.bytes_s),
        (Signal.SOCKET, carried, floors.socket_bytes_s),
        (Signal.FAULTS, faulted, floors.faults_s),
    )


def _memory(sample: ProcessSample) -> int:
    return sample.memory_bytes


def _shared_memory(sample: ProcessSample) -> int | Gap:
    return sample.shared_bytes


class Rates(NamedTuple):
    """What one process did per second over the window: cores of CPU, bytes."""

    cpu_cores: float
    read_bytes_s: float
    write_bytes_s: float
    socket_bytes_s: float
    growth_bytes_s: float


class Track:
    """The last minute of one process."""

    def __init__(self, floors: Floors, born: Point | None = None) -> None:
        """`born` is the point from which a process that was seen to appear has to be counted."""
        self._floors = floors
        self._points: deque[Point] = deque([born] if born else [])
        self._rest_cores: float | None = None
        self._waiting_since: float | None = None
        self._counters = _counters(floors)

    def see(self, point: Point) -> None:
        """Take in the newest sample."""
        self._note_wait(point)
        self._points.append(point)
        while self._points[0].at < point.at - self._floors.growth_memory_s - self._floors.window_s:
            self._points.popleft()
        window = self._window()
        if window[-1].at - window[0].at >= self._floors.window_s:
            cores = self._rate(window, cpu)
            self._rest_cores = cores if self._rest_cores is None else min(self._rest_cores, cores)

    def _note_wait(self, point: Point) -> None:
        before = self._points[-1].main_thread if self._points else None
        if point.main_thread is None:
            self._waiting_since = None
        elif before is None or before.waits != point.main_thread.waits or self._waiting_since is None:
            self._waiting_since = point.at

    @property
    def last(self) -> ProcessSample:
        return self._points[-1].sample

    @property
    def waiting_s(self) -> float | None:
        """How long its main thread has been in the wait that it is in, as far as it was seen; None if it was not."""
        return None if self._waiting_since is None else self._points[-1].at - self._waiting_since

    def rates(self) -> Rates:
        """For the screen and the sentences."""
        window = self._window()
        memory = window[-1].sample.memory_bytes - window[0].sample.memory_bytes
        return Rates(
            cpu_cores=self._rate(window, cpu) + self._rate(window, children_cpu),
            read_bytes_s=self._rate(window, read),
            write_bytes_s=self._rate(window, written),
            socket_bytes_s=self._rate(window, carried),
            growth_bytes_s=max(0.0, memory / self._span(window)),
        )

    def signals(self, *, serving: bool = False) -> dict[Signal, float]:
        """The strong signals in the window and when each was last above its floor.

        While `serving`, one stretch of CPU is none: it may be a scrape of metrics.
        """
        window = self._window()
        found: dict[Signal, float] = {}
        for signal, amount, floor in self._counters:
            self._date(found, signal, self._last_above(window, amount, floor))
        self._date(found, Signal.MEMORY, self._last_growth(window, _memory, self._memory_floor(window)))
        shared = self._last_growth(window, _shared_memory, self._floors.growth_bytes)
        self._date(found, Signal.SHARED_MEMORY, shared)
        self._date(found, Signal.CPU, self._last_above(window, cpu, self._cpu_floor()))
        self._date(found, Signal.CPU, self._last_runnable(window))
        self._date(found, Signal.CPU, None if serving else self._last_stretch(window))
        return found

    @staticmethod
    def _date(found: dict[Signal, float], signal: Signal, at: float | None) -> None:
        if at is not None:
            found[signal] = max(at, found.get(signal, at))

    def _cpu_floor(self) -> float:
        """The floor for CPU, above what this process used in its quietest window."""
        return self._floors.cpu_cores + min(self._rest_cores or 0.0, self._floors.rest_cores_max)

    def _memory_floor(self, window: Sequence[Point]) -> int:
        """The floor for growth, above what new threads cost by being there."""
        new_threads = max(0, window[-1].sample.threads - window[0].sample.threads)
        return self._floors.growth_bytes + new_threads * self._floors.thread_bytes

    def _window(self) -> list[Point]:
        newest = self._points[-1].at
        window: list[Point] = []
        for point in reversed(self._points):
            window.append(point)
            if point.at <= newest - self._floors.window_s:
                break
        return window[::-1]

    def _span(self, window: Sequence[Point]) -> float:
        """Seconds to divide by. Never less than a whole window: the first second of a process proves nothing."""
        return max(self._floors.window_s, window[-1].at - window[0].at)

    def _rate(self, window: Sequence[Point], amount: Amount) -> float:
        return sum(amount(a, b) for a, b in pairwise(window)) / self._span(window)

    def _last_above(self, window: Sequence[Point], amount: Amount, floor: float) -> float | None:
        if self._rate(window, amount) < floor:
            return None
        return max((b.at for a, b in pairwise(window) if amount(a, b) >= floor * (b.at - a.at)), default=None)

    def _last_growth(
        self, window: Sequence[Point], level: Callable[[ProcessSample], int | Gap], floor: int
    ) -> float | None:
        """When the level last rose, if it rose over the window and beyond the peak before it."""
        before = [level(point.sample) for point in self._points if point.at <= window[0].at]
        peak = max((value for value in before if not isinstance(value, Gap)), default=None)
        newest = level(window[-1].sample)
        if peak is None or isinstance(newest, Gap) or newest - peak < floor:
            return None
        return max((b.at for a, b in pairwise(window) if grown(level(a.sample), level(b.sample)) > 0), default=None)

    def _last_runnable(self, window: Sequence[Point]) -> float | None:
        running = [point.at for point in window if point.sample.state == "R"]
        whole = window[-1].at - window[0].at >= self._floors.window_s
        often = len(running) >= self._floors.runnable_share * len(window)
        return running[-1] if whole and often and not self._naps(window) else None

    def _naps(self, window: Sequence[Point]) -> bool:
        return 0 < between_waits(window[0], window[-1]) < self._floors.nap_s

    def _last_stretch(self, window: Sequence[Point]) -> float | None:
        """When the main thread last computed for long without waiting; a sample may have come in between."""
        found = None
        for before, last, now in zip([window[0], *window], window, window[1:], strict=False):
            lately = between_waits(last, now)
            if lately > 0 and max(lately, between_waits(before, now)) >= self._floors.stretch_s:
                found = now.at
        return found
