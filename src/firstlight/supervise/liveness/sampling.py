"""One cheap sample of every process of the server: five small reads of /proc each; sockets and GPUs at their pace.

Only counters and levels are read here; what they mean is for `liveness` to say. A process that is gone, or whose pid
now belongs to another, is left out. A file that may not be read is a gap in its field, and once for all processes in
`Measurement.gaps`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from firstlight import procfs
from firstlight.clock import Clock
from firstlight.core.gap import Gap
from firstlight.core.process import Process, ProcessId, ProcessSample
from firstlight.core.vocabulary import Role
from firstlight.gpus.watching import GpuReader, GpuSample
from firstlight.supervise.liveness.sockets import Listening, Sockets


class MainThread(NamedTuple):
    """What the first thread of a process did so far: seconds of CPU, and how often it went to wait by itself."""

    cpu_s: float
    waits: int


class Measurement(NamedTuple):
    """What was measured at `at` (monotonic seconds), `interval_s` after the measurement before it (0 for the first).

    `socket_bytes` counts by pid what its TCP connections carried so far; it is renewed every few seconds only.
    `gpus` is empty on a machine without any. `main_threads` lacks processes of which they may not be seen.
    """

    at: float
    interval_s: float
    samples: dict[ProcessId, ProcessSample]
    socket_bytes: dict[int, int] | Gap
    gpus: tuple[GpuSample, ...] | Gap
    gaps: tuple[Gap, ...] = ()
    main_threads: Mapping[ProcessId, MainThread] = {}


class Sampler:
    """Samples the processes it is given, as often as it is asked."""

    def __init__(self, clock: Clock, *, port: int = 0, gpus: GpuReader | None = None) -> None:
        """`port` is the server's own HTTP port, whose traffic is no progress; 0 if it is not known yet."""
        self._clock = clock
        self._sockets = Sockets(clock, port)
        self._gpus = gpus
        self._last_at: float | None = None

    def sample(self, processes: Iterable[Process]) -> Measurement:
        """Measure `processes` now: some 100 µs of CPU each, sockets included (8 processes of 100 threads)."""
        now = self._clock.monotonic()
        samples = {process.id: sample for process in processes if (sample := sample_of(process.id)) is not None}
        interval_s = now - self._last_at if self._last_at is not None else 0.0
        self._last_at = now
        socket_bytes = self._sockets.bytes_by_pid([id_.pid for id_ in samples])
        gpus = self._gpus.read(now) if self._gpus is not None else ()
        gaps = _one_of_each(gap for part in (_gaps_in(samples.values()), (socket_bytes, gpus)) for gap in part)
        threads = {id_: thread for id_ in samples if (thread := main_thread_of(id_.pid)) is not None}
        return Measurement(now, interval_s, samples, socket_bytes, gpus, gaps, threads)

    def listening_ports(self, processes: Iterable[Process], port: int = 0) -> Listening:
        """TCP ports that these processes listen on, and those of which it cannot be told; usually a second old.

        With `port` only that one is looked for, which spares a search whenever somebody else opens another.
        """
        return self._sockets.listening([process.id.pid for process in _likeliest_first(list(processes))], port)

    def clients_of(self, port: int) -> int:
        """Connections to `port` that are not firstlight's own. From now on their traffic is no progress."""
        self._sockets.port = port
        return self._sockets.clients(port)

    def close(self) -> None:
        """End the GPU reader."""
        if self._gpus is not None:
            self._gpus.close()


def _likeliest_first(processes: Sequence[Process]) -> list[Process]:
    """Who has probably opened a port: the process that answers HTTP, the root, then the newest."""
    pids = {process.id.pid for process in processes}
    return sorted(processes, key=lambda one: (one.role != Role.FRONT, one.ppid in pids, -one.id.started))


def sample_of(id_: ProcessId) -> ProcessSample | None:
    """A sample of one process, None if it is gone or its pid belongs to another process now."""
    try:
        return procfs.sample(id_)
    except OSError:
        return None


def main_thread_of(pid: int) -> MainThread | None:
    """What its first thread did, None if the process is gone or that may not be seen."""
    try:
        return MainThread(procfs.stat(pid, pid).cpu_s, int(procfs.status(pid)["voluntary_ctxt_switches"]))
    except (OSError, KeyError, ValueError):
        return None


def _gaps_in(samples: Iterable[ProcessSample]) -> Iterable[object]:
    for sample in samples:
        yield sample.read_bytes
        yield sample.shared_bytes


def _one_of_each(candidates: Iterable[object]) -> tuple[Gap, ...]:
    """The gaps among `candidates`, one for each thing that was not seen: forty refused processes are one gap."""
    first: dict[tuple[str, str], Gap] = {}
    for gap in candidates:
        if isinstance(gap, Gap):
            first.setdefault((gap.what, gap.reason), gap)
    return tuple(first.values())
