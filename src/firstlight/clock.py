"""The only reader of time.

Everything that waits or measures takes a `Clock`, so tests can move time by hand. Durations come from the
monotonic clock. Wall time is only ever shown to people and compared between machines; it is read once and then
moved on by the monotonic clock, so that a jump (NTP, suspend, an operator's `date`) bends no phase and no event of
a run. How far the system's clock has jumped since is told by `jumped_s`.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Time as firstlight sees it."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since the Unix epoch; never jumps, see `jumped_s`."""
        ...

    def jumped_s(self) -> float:
        """How far the system's wall clock has jumped, or been slept through, since this clock was made."""
        ...

    def boottime(self) -> float:
        """Seconds since the machine booted, the same for every process; never jumps, and counts suspended time."""
        ...

    def cpu(self) -> float:
        """Seconds of CPU that the calling thread has used; only differences mean something."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def __init__(self) -> None:
        self._wall_offset = time.time() - time.monotonic()

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.monotonic() + self._wall_offset

    def jumped_s(self) -> float:
        return time.time() - self.wall()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def cpu(self) -> float:
        return time.thread_time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class HandClock:
    """A clock for tests: stands still until it is told to move. Nothing costs any CPU by it."""

    def __init__(self, start: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._now = start
        self._wall_offset = wall - start
        self._jumped_s = 0.0

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._wall_offset

    def jumped_s(self) -> float:
        return self._jumped_s

    def boottime(self) -> float:
        return self._now

    def cpu(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass at once."""
        self._now += seconds

    def jump_wall(self, seconds: float) -> None:
        """Move the system's wall clock alone, as an operator or NTP would."""
        self._jumped_s += seconds


class Deadline:
    """A wait with an end and a name: `Deadline(clock, 5, "the first token")`."""

    def __init__(self, clock: Clock, seconds: float, name: str) -> None:
        self.name = name
        self.seconds = seconds
        self._clock = clock
        self._ends = clock.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until the end; never negative."""
        return max(0.0, self._ends - self._clock.monotonic())

    @property
    def passed(self) -> bool:
        return self._clock.monotonic() >= self._ends
