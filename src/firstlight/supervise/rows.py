"""The processes of a server as rows: who each is, and what it did over the last sample."""

from collections.abc import Mapping

from firstlight.core.gap import Gap
from firstlight.core.process import Process, ProcessId, ProcessSample
from firstlight.core.view import ProcessRow
from firstlight.supervise.liveness.sampling import Measurement
from firstlight.supervise.log.phases import PhaseTracker


class Rows:
    """Turns counters that only grow into rates, from one measurement to the next."""

    def __init__(self) -> None:
        self.all: tuple[ProcessRow, ...] = ()
        self._before: dict[ProcessId, ProcessSample] = {}

    def update(self, measurement: Measurement, processes: Mapping[ProcessId, Process], phases: PhaseTracker) -> None:
        """Take in one more measurement."""
        over_s = max(measurement.interval_s, 0.001)
        self.all = tuple(
            _row(processes[id_], sample, self._before.get(id_, sample), over_s, phases)
            for id_, sample in measurement.samples.items()
            if id_ in processes
        )
        self._before = dict(measurement.samples)


def _row(
    process: Process, now: ProcessSample, before: ProcessSample, over_s: float, phases: PhaseTracker
) -> ProcessRow:
    return ProcessRow(
        pid=process.id.pid,
        name=process.name,
        role=process.role,
        label=process.label,
        rank=process.rank,
        phase=phases.phase_of(process.label, process.id.pid),
        state=now.state,
        cpu_percent=(now.cpu_s - before.cpu_s) / over_s * 100,
        read_bytes_s=_rate(now.read_bytes, before.read_bytes, over_s),
        write_bytes_s=_rate(now.write_bytes, before.write_bytes, over_s),
        memory_bytes=now.memory_bytes,
    )


def _rate(now: int | Gap, before: int | Gap, over_s: float) -> float:
    """Per second; 0 where it may not be seen, which the run's gaps tell."""
    if isinstance(now, Gap) or isinstance(before, Gap):
        return 0.0
    return max(0, now - before) / over_s
