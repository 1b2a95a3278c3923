"""What grew between two samples of one process: CPU, bytes, page faults. Pure."""

from collections.abc import Callable
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.process import ProcessSample
from firstlight.supervise.liveness.sampling import MainThread


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
