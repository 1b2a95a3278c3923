"""The run's state: small, replaced whole at every tick, so that `firstlight probe` answers in milliseconds."""

from firstlight.core.record import Record
from firstlight.core.vocabulary import Motion, Outcome, Phase

STATE_STALE_S = 15.0
"""A state older than this is not trusted: whoever wrote it is gone."""


class RunState(Record, kw_only=True):
    """Where a run stands.

    `since` is the wall time from which `motion` has held, `quiet_s` the seconds since the last progress signal, both
    as of the write: `at` on the wall clock, `boottime` on CLOCK_BOOTTIME, which no wall-clock jump can bend.
    `started` is the wall time of the launch, `first_token_s` the seconds from there to the first verified token.
    `pid_space` names where its pids mean something: the boot of a machine and a pid namespace; empty if unknown.
    """

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
    engine: str = ""
    model: str = ""
    started: float = 0.0
    first_token_s: float | None = None
    pid_space: str = ""
