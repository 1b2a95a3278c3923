"""The run's state: small, replaced whole at every tick, so that `firstlight probe` answers in milliseconds."""

from firstlight.core.record import Record
from firstlight.core.vocabulary import Motion, Outcome, Phase

STATE_STALE_S = 15.0
"""A state older than this is not trusted: whoever wrote it is gone."""


class RunState(Record):
    """Where a run stands. `boottime` is CLOCK_BOOTTIME at the write, which no wall-clock jump can bend."""

    run: str
    supervisor: int
    server: int
    url: str
    phase: Phase
    motion: Motion
    why: str
    since: float
    quiet_s: float
    progress: str
    serving: bool
    outcome: Outcome | None
    at: float
    boottime: float
