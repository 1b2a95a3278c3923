"""The measured series under a report's timeline: CPU, I/O and GPU of each rank, in bounded memory.

All series share one grid of slots. When it is full, neighbours are joined and a slot lasts twice as long: an hour
takes as much memory as a minute, and what was measured keeps its mean.
"""

from collections.abc import Iterable, Sequence

from firstlight.core.gap import Gap
from firstlight.core.graph import Strip
from firstlight.core.view import ProcessRow
from firstlight.core.vocabulary import Role
from firstlight.supervise.liveness.sampling import Measurement

VALUES_MAX = 240
SERIES_MAX = 3 * 256
"""Beyond so many, new series are not begun: a server with thousands of processes has other worries."""
SHOWN_ROLES = frozenset({Role.FRONT, Role.ENGINE, Role.WORKER})


class _Series:
    """One mean per slot, of the seconds of it that were measured."""

    def __init__(self) -> None:
        self._sums: list[float] = []
        self._seconds: list[float] = []

    def add(self, slot: int, value: float, seconds: float) -> None:
        missing = slot + 1 - len(self._sums)
        self._sums += [0.0] * missing
        self._seconds += [0.0] * missing
        self._sums[slot] += value * seconds
        self._seconds[slot] += seconds

    def halve(self) -> None:
        self._sums = _joined(self._sums)
        self._seconds = _joined(self._seconds)

    @property
    def values(self) -> tuple[float, ...]:
        measured = zip(self._sums, self._seconds, strict=True)
        return tuple(float(f"{total / seconds:.3g}") if seconds > 0 else -1.0 for total, seconds in measured)


class Strips:
    """Records what `Rows` makes of each measurement."""

    def __init__(self, began: float, step_s: float = 1.0) -> None:
        """`began` is the wall time of the first slot, `step_s` how long a slot lasts until they are too many."""
        self._began = began
        self._step_s = step_s
        self._series: dict[tuple[str, int, str], _Series] = {}

    def add(self, rows: Sequence[ProcessRow], measurement: Measurement, now: float) -> None:
        """Take in the rates of the `measurement.interval_s` seconds before `now` (wall time)."""
        if measurement.interval_s <= 0:
            return
        blind = {id_.pid for id_, sample in measurement.samples.items() if isinstance(sample.read_bytes, Gap)}
        for row in rows:
            if row.role not in SHOWN_ROLES:
                continue
            source = (row.label or row.name)[:80]
            self._put((source, row.rank, "cpu"), max(0.0, row.cpu_percent / 100), now, measurement.interval_s)
            if row.pid not in blind:
                moved = row.read_bytes_s + row.write_bytes_s
                self._put((source, row.rank, "io"), moved, now, measurement.interval_s)
        for (source, rank), percent in _gpu_percents(rows, measurement):
            self._put((source, rank, "gpu"), percent, now, measurement.interval_s)

    @property
    def all(self) -> tuple[Strip, ...]:
        """Every series, ranks in their order, processes without one after them."""
        ordered = sorted(self._series, key=lambda key: (key[1] < 0, key[1], key[0]))
        return tuple(
            Strip(
                source=source,
                rank=rank,
                what=what,
                began=self._began,
                step_s=self._step_s,
                values=self._series[source, rank, what].values,
            )
            for source, rank, what in ordered
        )

    def _put(self, key: tuple[str, int, str], value: float, now: float, over_s: float) -> None:
        """Spread a rate over the slots that its measurement covers."""
        if key not in self._series and len(self._series) >= SERIES_MAX:
            return
        while now - self._began > VALUES_MAX * self._step_s:
            self._step_s *= 2
            for series in self._series.values():
                series.halve()
        series = self._series.setdefault(key, _Series())
        begin, end = max(0.0, now - over_s - self._began), now - self._began
        for slot in range(int(begin / self._step_s), min(VALUES_MAX - 1, int(end / self._step_s)) + 1):
            within = min(end, (slot + 1) * self._step_s) - max(begin, slot * self._step_s)
            if within > 0:
                series.add(slot, value, within)


def _gpu_percents(rows: Sequence[ProcessRow], measurement: Measurement) -> Iterable[tuple[tuple[str, int], float]]:
    """The load of each GPU, filed under the rank that is alone on it, or else under its own name."""
    if isinstance(measurement.gpus, Gap):
        return
    for gpu in measurement.gpus:
        if isinstance(gpu.utilisation, Gap):
            continue
        users = [row for row in rows if row.pid in gpu.pids and row.role in SHOWN_ROLES]
        owner = ((users[0].label or users[0].name)[:80], users[0].rank) if len(users) == 1 else None
        yield owner or (f"GPU {gpu.index}", -1), gpu.utilisation


def _joined(values: list[float]) -> list[float]:
    """Neighbours added to each other."""
    return [sum(values[index : index + 2]) for index in range(0, len(values), 2)]
