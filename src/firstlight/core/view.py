"""What a live screen shows of a run at one moment."""

from firstlight.core.log import Counter, PhaseSpan
from firstlight.core.record import Record
from firstlight.core.vocabulary import Motion, Phase, Role


class ProcessRow(Record):
    """One process on the screen. Rates are per second over the last sample."""

    pid: int
    name: str
    role: Role
    label: str
    rank: int
    phase: Phase | None
    state: str
    cpu_percent: float
    read_bytes_s: float
    write_bytes_s: float
    memory_bytes: int
    gpu_percent: float | None = None


class LiveView(Record):
    """The whole screen. `quiet_s` counts since the last progress signal, `threshold_s` is when a look follows;
    `asleep` says who naps meanwhile, and for how long yet.
    """

    run: str
    engine: str
    engine_version: str
    url: str
    phase: Phase
    motion: Motion
    why: str
    elapsed_s: float
    quiet_s: float
    threshold_s: float
    timeline: tuple[PhaseSpan, ...]
    rows: tuple[ProcessRow, ...]
    now: float
    last_log: str = ""
    counter: Counter | None = None
    eta_s: float | None = None
    in_flight: int | None = None
    looking: bool = False
    asleep: str = ""
