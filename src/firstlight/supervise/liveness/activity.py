"""The signals of a whole server: one track per process, its GPUs, and what processes come and go. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.process import Process, ProcessId, ProcessSample
from firstlight.core.record import Record
from firstlight.core.vocabulary import Phase, Role, Signal
from firstlight.supervise.liveness.amounts import Point
from firstlight.supervise.liveness.floors import Floors
from firstlight.supervise.liveness.gpu_signals import GpuTrack
from firstlight.supervise.liveness.novelty import Novelty
from firstlight.supervise.liveness.sampling import Measurement
from firstlight.supervise.liveness.signals import Track

HTTP_TRAFFIC = frozenset({Signal.READ, Signal.WRITE, Signal.SOCKET})
"""Of the process that answers HTTP this is no progress while serving: health checks and scrapes go on in a hang."""
GROWTH = frozenset({Signal.MEMORY, Signal.SHARED_MEMORY})
"""While serving this is none either: buffers grow with every question that a hung server takes in."""
GONE = frozenset("ZX")


class ProcessMotion(Record):
    """What one process does, for a screen: rates per second over the last window, CPU in cores.

    `quiet_s` counts since its last own signal, or since it was first seen; `waiting_s` is how long its main thread
    has been seen in one and the same wait, None where that may not be seen.
    """

    id: ProcessId
    name: str
    role: Role
    rank: int
    state: str
    cpu_cores: float
    read_bytes_s: float
    write_bytes_s: float
    socket_bytes_s: float
    growth_bytes_s: float
    signals: tuple[Signal, ...]
    quiet_s: float
    waiting_s: float | None = None

    @property
    def busy(self) -> bool:
        """Whether its CPU is a strong signal."""
        return bool({Signal.CPU, Signal.COMPILE_CHILD}.intersection(self.signals))


class Activity(NamedTuple):
    """What the server does: its strong signals with the time of each, and the processes with theirs."""

    signals: dict[Signal, float]
    processes: dict[int, ProcessMotion]


class Activities:
    """Follows every process of one server."""

    def __init__(self, floors: Floors) -> None:
        self._floors = floors
        self._tracks: dict[ProcessId, Track] = {}
        self._signalled: dict[ProcessId, float] = {}
        self._gpus = GpuTrack(floors)
        self._programs = Novelty()
        self._updated_at: float | None = None

    def see(
        self,
        measurement: Measurement,
        processes: Mapping[ProcessId, Process],
        *,
        now: float,
        log_bytes: int,
        phase: Phase,
        serving: bool,
    ) -> Activity:
        """Take in one measurement. `now` is the time to date it by, `log_bytes` how long all logs are by now."""
        samples = {id_: s for id_, s in measurement.samples.items() if id_ in processes and s.state not in GONE}
        activity = Activity({}, {})
        for id_, sample in samples.items():
            socket_bytes = _bytes_of(measurement.socket_bytes, id_.pid)
            point = Point(now, sample, socket_bytes, log_bytes, measurement.main_threads.get(id_))
            if id_ not in self._tracks:
                self._meet(processes[id_], point, phase, activity.signals)
            self._tracks[id_].see(point)
            motion = self._motion(processes[id_], now, serving=serving, signals=activity.signals)
            activity.processes[id_.pid] = motion
        if not isinstance(measurement.gpus, Gap):
            pids = frozenset(id_.pid for id_ in samples)
            _later(activity.signals, self._gpus.see(now, measurement.gpus, pids))
        self._tracks = {id_: self._tracks[id_] for id_ in samples}
        self._signalled = {id_: self._signalled[id_] for id_ in samples}
        self._updated_at = now
        return activity

    def _meet(self, process: Process, point: Point, phase: Phase, signals: dict[Signal, float]) -> None:
        """A process seen for the first time. What it did since the last update was all its own doing."""
        born = _born(point, self._updated_at) if self._updated_at is not None else None
        self._tracks[process.id] = Track(self._floors, born)
        self._signalled[process.id] = point.at
        if self._programs.is_new(phase, process.name):
            signals[Signal.TREE] = point.at

    def _motion(self, process: Process, now: float, *, serving: bool, signals: dict[Signal, float]) -> ProcessMotion:
        track = self._tracks[process.id]
        own = _in_role(track.signals(serving=serving), process.role, serving=serving)
        _later(signals, own)
        self._signalled[process.id] = max(self._signalled[process.id], *own.values(), 0.0)
        rates = track.rates()
        return ProcessMotion(
            id=process.id,
            name=process.label or process.name,
            role=process.role,
            rank=process.rank,
            state=track.last.state,
            signals=tuple(own),
            quiet_s=now - self._signalled[process.id],
            waiting_s=track.waiting_s,
            **rates._asdict(),
        )


def _in_role(signals: dict[Signal, float], role: Role, *, serving: bool) -> dict[Signal, float]:
    """The signals as they count for a process with this part to play."""
    if role == Role.COMPILER and Signal.CPU in signals:
        return {**signals, Signal.COMPILE_CHILD: signals[Signal.CPU]}
    if not serving:
        return signals
    no_progress = GROWTH | HTTP_TRAFFIC if role == Role.FRONT else GROWTH
    return {signal: at for signal, at in signals.items() if signal not in no_progress}


def _later(signals: dict[Signal, float], more: Mapping[Signal, float]) -> None:
    for signal, at in more.items():
        signals[signal] = max(at, signals.get(signal, at))


def _bytes_of(socket_bytes: dict[int, int] | Gap, pid: int) -> int | Gap:
    return socket_bytes if isinstance(socket_bytes, Gap) else socket_bytes.get(pid, 0)


def _born(point: Point, at: float) -> Point:
    """The point from which to count a process that appeared after `at`: no CPU, no bytes; memory it was given."""
    sample = point.sample
    empty = ProcessSample(
        id=sample.id,
        state=sample.state,
        cpu_s=0.0,
        threads=1,
        major_faults=0,
        memory_bytes=sample.memory_bytes,
        shared_bytes=sample.shared_bytes,
        read_bytes=_zero(sample.read_bytes),
        write_bytes=_zero(sample.write_bytes),
        disk_read_bytes=_zero(sample.disk_read_bytes),
    )
    return Point(at, empty, _zero(point.socket_bytes), point.log_bytes)


def _zero(count: int | Gap) -> int | Gap:
    return count if isinstance(count, Gap) else 0
