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
from firstlight.core.record import Record
from firstlight.core.vocabulary import Signal
from firstlight.gpus.watching import GpuSample
from firstlight.supervise.liveness.sampling import MainThread

KIB = 1024


class Floors(Record):
    """Where work begins. Shares are of one core or in percent, the rest in bytes or counts.

    cpu: threads that poll ten times a second use 0.1 % to 3 % of a core, an idle vLLM engine 1 %; a loader that waits
    for a slow disk 20 % and more. `rest_cores_max` bounds what is forgiven as the process's own idle heartbeat.
    children: CPU of children that came and went. `until curl ...; do sleep 1; done` uses 1 to 2 %, a build far more.
    runnable: the main thread was found running or ready this often; true for one that computes on a crowded machine
    or under a CPU quota, and gets less than the floor. `nap_s` is the CPU from one wait to the next of a thread that
    only polls, and is always ready there too: loops that sleep for 50 µs come to as much again.
    stretch: CPU that the main thread used in one go, whatever it comes to over a window. Who only looks whether it is
    time goes back to wait after a few milliseconds.
    bytes: the slowest load worth waiting for brings 50 kB/s; reading /proc/meminfo and /proc/stat once a second, as
    monitoring threads do, 2 to 6 kB/s. disk: nobody reads storage to stay alive.
    socket: ZeroMQ heartbeats, TCPStore polls and keep-alives stay below 1 kB/s.
    growth: over a window (40 KiB/s) and beyond the peak of the minute before, so that a heap that breathes is no
    progress, and neither is a small leak, nor a hung server that is asked again and again (26 kB/s). Before Linux
    6.16 the kernel counts in steps of 256 KiB, each of which is then taken for growth. `thread_bytes` is taken off
    for every new thread: one that holds a buffer of 64 KiB costs 80 to 95 kB.
    faults: pages fetched from storage for a memory-mapped file.
    gpu: utilisation only says that a kernel is resident. A kernel that spins for its peer shows 100 % with no memory
    activity at a fifth of the power limit or less (70 W of 400, 22 W of 140).
    """

    window_s: float = 5.0
    cpu_cores: float = 0.10
    weak_cores: float = 0.01
    rest_cores_max: float = 0.05
    children_cores: float = 0.03
    runnable_share: float = 0.6
    nap_s: float = 0.001
    stretch_s: float = 0.05
    bytes_s: float = 8 * KIB
    disk_bytes_s: float = 1 * KIB
    socket_bytes_s: float = 2 * KIB
    growth_bytes: int = 200 * KIB
    thread_bytes: int = 128 * KIB
    growth_memory_s: float = 60.0
    faults_s: float = 2.0
    gpu_utilisation: float = 5.0
    gpu_memory_activity: float = 3.0
    gpu_power_share: float = 0.30
    gpu_growth_bytes: int = 8 * KIB * KIB


class Point(NamedTuple):
    """One sample with what else was known at its time: bytes on its sockets, bytes that all logs grew so far, and
    what its main thread did, None where that may not be seen."""

    at: float
    sample: ProcessSample
    socket_bytes: int | Gap
    log_bytes: int
    main_thread: MainThread | None = None


Amount = Callable[[Point, Point], float]
"""What grew from one point to the next."""


def grown(before: int | Gap, now: int | Gap) -> float:
    """How much a counter grew; nothing where it was not seen."""
    return 0.0 if isinstance(before, Gap) or isinstance(now, Gap) else max(0.0, float(now - before))


def cpu(before: Point, now: Point) -> float:
    """Seconds of CPU."""
    return max(0.0, now.sample.cpu_s - before.sample.cpu_s)


def children_cpu(before: Point, now: Point) -> float:
    """Seconds of CPU of children that have ended; of one that had lived long no more than these seconds can hold."""
    return min(now.at - before.at, max(0.0, now.sample.children_cpu_s - before.sample.children_cpu_s))


def read(before: Point, now: Point) -> float:
    """Bytes read, less what the logs grew: a `tee` in the pipeline only passes them on."""
    return max(0.0, grown(before.sample.read_bytes, now.sample.read_bytes) - _logged(before, now))


def written(before: Point, now: Point) -> float:
    """Bytes written, less the log."""
    return max(0.0, grown(before.sample.write_bytes, now.sample.write_bytes) - _logged(before, now))


def fetched(before: Point, now: Point) -> float:
    """Bytes fetched from storage."""
    return grown(before.sample.disk_read_bytes, now.sample.disk_read_bytes)


def carried(before: Point, now: Point) -> float:
    """Bytes over TCP."""
    return grown(before.socket_bytes, now.socket_bytes)


def faulted(before: Point, now: Point) -> float:
    """Major page faults."""
    return max(0.0, float(now.sample.major_faults - before.sample.major_faults))


def between_waits(before: Point, now: Point) -> float:
    """Seconds of CPU that the main thread used from one wait to the next, on average; 0 where it was not seen."""
    if before.main_thread is None or now.main_thread is None:
        return 0.0
    waits = now.main_thread.waits - before.main_thread.waits
    return max(0.0, now.main_thread.cpu_s - before.main_thread.cpu_s) / max(1, waits)


def _logged(before: Point, now: Point) -> float:
    return float(now.log_bytes - before.log_bytes)


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


class GpuTrack:
    """The last window of the GPUs that the server uses."""

    def __init__(self, floors: Floors) -> None:
        self._floors = floors
        self._points: deque[tuple[float, dict[int, GpuSample]]] = deque()
        self._answer: Sequence[GpuSample] = ()
        self._found: dict[Signal, float] = {}

    def see(self, at: float, gpus: Sequence[GpuSample], pids: frozenset[int]) -> dict[Signal, float]:
        """Take in what the driver said last; the strong signals in it, dated by when it was new."""
        if gpus is not self._answer:
            self._answer = gpus
            self._found = self._signals(at, gpus, pids)
        return self._found

    def _signals(self, at: float, gpus: Sequence[GpuSample], pids: frozenset[int]) -> dict[Signal, float]:
        # Where the driver numbers processes as another container does, every GPU may be the server's.
        used = [gpu for gpu in gpus if pids.intersection(gpu.pids)] or list(gpus)
        while self._points and self._points[0][0] < at - self._floors.window_s:
            self._points.popleft()
        self._points.append((at, {gpu.index: gpu for gpu in used}))
        found = {}
        if any(works(gpu, self._floors) for gpu in used):
            found[Signal.GPU] = at
        if any(self._grew(gpu) for gpu in used):
            found[Signal.GPU_MEMORY] = at
        return found

    def _grew(self, gpu: GpuSample) -> bool:
        earliest = next(gpus[gpu.index] for _, gpus in self._points if gpu.index in gpus)
        return grown(earliest.memory_bytes, gpu.memory_bytes) >= self._floors.gpu_growth_bytes


def works(gpu: GpuSample, floors: Floors) -> bool:
    """Whether a GPU works: a kernel is resident and it moves memory or burns power."""
    if isinstance(gpu.utilisation, Gap) or gpu.utilisation < floors.gpu_utilisation:
        return False
    if not isinstance(gpu.memory_activity, Gap) and gpu.memory_activity >= floors.gpu_memory_activity:
        return True
    if isinstance(gpu.power_w, Gap) or isinstance(gpu.power_limit_w, Gap):
        return False
    return gpu.power_w >= floors.gpu_power_share * gpu.power_limit_w
