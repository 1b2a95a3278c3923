"""Moving, slow, quiet or stalled: measurements in, a judgement out. No I/O, no clock; times are passed in.

Two stages. Cheap signals (`signals`, `activity`) come every second. When they leave a doubt (`suspicion`) the
judgement wants looks: the watcher takes two, some seconds apart, and hands over what they showed with `confirm`. Only
that makes a stall; no silence is long enough by itself. Where they show somebody who sleeps until a moment that is
near (`naps`), that moment is waited for first. A stall ends when a signal comes back.

Silence is counted in time that was watched: when two updates are far apart, because firstlight itself was stopped or
the machine slept, what lies between counts as three intervals at most.
"""

from collections.abc import Mapping, Sequence

from firstlight.core.gap import Gap
from firstlight.core.process import Exit, Process, ProcessId
from firstlight.core.record import Record
from firstlight.core.vocabulary import Motion, Phase, Signal
from firstlight.supervise.liveness import wording
from firstlight.supervise.liveness.activity import Activities, Activity, ProcessMotion
from firstlight.supervise.liveness.history import Need
from firstlight.supervise.liveness.losses import Losses
from firstlight.supervise.liveness.naps import Nap, explains, nap_of
from firstlight.supervise.liveness.novelty import Novelty
from firstlight.supervise.liveness.sampling import Measurement
from firstlight.supervise.liveness.suspicion import (
    Confirmation,
    Doubts,
    Facts,
    Proof,
    Suspicion,
    Thresholds,
    stopped_for_good,
    suspect,
    weigh,
)

__all__ = ["Confirmation", "Judgement", "Liveness", "LogActivity", "ProcessMotion", "Suspicion", "Thresholds"]

UPDATES_MISSED_MAX = 3
COMPUTING = frozenset({Signal.CPU})
"""Alone this is ambiguous: a compile, or a spin."""


class LogActivity(Record):
    """What the logs did since the last update.

    `new_text`: a line that this phase had not heard yet (`Liveness.is_new_text`). `counter_moved`: shards, batches,
    bytes or tokens went up. `new_bytes` is how much all logs grew; it is taken off what the processes wrote.
    """

    new_text: bool = False
    counter_moved: bool = False
    new_bytes: int = 0


class Judgement(Record):
    """What the signals say of the whole server.

    `why` is a sentence with its numbers. `quiet_s` is how long there has been no signal (in a stall: none that came
    to anything), `threshold_s` how long this phase may be quiet before a look. `wants_look` stays true until
    `confirm` is called or the doubt goes away. `asleep` says who naps while all is silent, and for how long yet.
    """

    motion: Motion
    why: str
    signals: tuple[Signal, ...] = ()
    quiet_s: float = 0.0
    threshold_s: float = 0.0
    wants_look: bool = False
    suspicion: Suspicion | None = None
    busy_pids: frozenset[int] = frozenset()
    stopped_pids: frozenset[int] = frozenset()
    processes: tuple[ProcessMotion, ...] = ()
    gaps: tuple[Gap, ...] = ()
    asleep: str = ""


class Liveness:
    """Follows one server. Call `update` once per `Thresholds.interval_s`, `confirm` after two looks."""

    def __init__(self, thresholds: Thresholds = Thresholds()) -> None:  # noqa: B008 - frozen
        self._thresholds = thresholds
        self._activities = Activities(thresholds.floors)
        self._activity = Activity({}, {})
        self._news = Novelty()
        self._known: Mapping[Phase, Need] = {}
        self._needed: dict[Phase, Need] = {}
        self._measured_at: float | None = None
        self._now = 0.0
        self._log_bytes = self._repeats = 0
        self._phase = Phase.SPAWN
        self._phase_since = 0.0
        self._progress_at = self._computed_at = 0.0
        self._expecting = True
        self._stopped_since: dict[int, float] = {}
        self._losses = Losses()
        self._serving = self._blind = False
        self._gaps: tuple[Gap, ...] = ()
        self._doubts = Doubts(thresholds)
        self._stalled: Suspicion | None = None
        self._stalled_at = 0.0
        self._nap: Nap | None = None
        self._explained_at = -1.0
        """The last signal before a silence that a nap explains."""

    def initial(self) -> Judgement:
        """The judgement before anything was measured."""
        return Judgement(motion=Motion.MOVING, why="just started", threshold_s=self._thresholds.quiet_s)

    def expect(self, known: Mapping[Phase, Need]) -> None:
        """Take over what earlier good starts needed (`History.needs`)."""
        self._known = known

    @property
    def needed(self) -> dict[Phase, Need]:
        """What each phase of this start needed so far, for `History.learn` after a good one."""
        return dict(self._needed)

    def is_new_text(self, text: str) -> bool:
        """Whether a log message is news in this phase. Do not ask about consequences of a stall: they are none."""
        return self._news.is_new(self._phase, text)

    def update(
        self,
        measurement: Measurement,
        *,
        processes: Mapping[ProcessId, Process],
        phase: Phase,
        log: LogActivity = LogActivity(),  # noqa: B008 - frozen
        serving: bool = False,
        in_flight: int | Gap = 0,
        gone: Sequence[Exit] = (),
    ) -> Judgement:
        """Judge the server after one more measurement.

        While `serving`, silence only counts with requests `in_flight`; where that cannot be seen it does not.
        `gone` are all processes of the server so far that have ended while its root lives on.
        """
        self._advance(measurement.at)
        self._log_bytes += log.new_bytes
        self._activity = self._activities.see(
            measurement, processes, now=self._now, log_bytes=self._log_bytes, phase=phase, serving=serving
        )
        self._activity.signals.update(self._told(log, phase))
        self._serving, self._gaps, self._blind = serving, measurement.gaps, _blind(measurement)
        self._note_expecting(not serving or (isinstance(in_flight, int) and in_flight > 0))
        self._note_signals(self._activity.signals)
        self._note_states(gone)
        self._note_repeats(log)
        self._note_nap()
        facts = self._facts()
        self._end_stall(facts)
        self._note_need(facts)
        return self._judge(facts)

    def confirm(self, confirmation: Confirmation) -> Judgement:
        """Judge again with what two looks showed. Go on with updates while they are taken."""
        facts = self._facts()
        suspicion = suspect(facts, self._thresholds)
        if suspicion is not None and self._stalled is None:
            proof = weigh(suspicion, facts, confirmation, self._thresholds)
            at = self._measured_at or 0.0
            self._nap = nap_of(confirmation.sleeps, suspicion, facts, at=at, thresholds=self._thresholds)
            if proof != Proof.NONE and self._nap and explains(self._nap, suspicion, facts, self._thresholds):
                self._doubts.put_off(suspicion, self._nap.until + self._thresholds.woken_s)
                self._explained_at = facts.signal_at
            elif self._doubts.convinced(suspicion, proof, self._now):
                self._stalled, self._stalled_at = suspicion, self._now
            elif suspicion == Suspicion.QUIET and proof == Proof.NONE:
                self._computed_at = self._now  # stacks that change are work
        return self._judge(self._facts())

    # Taking in

    def _advance(self, at: float) -> None:
        passed = 0.0 if self._measured_at is None else at - self._measured_at
        self._now += min(max(0.0, passed), UPDATES_MISSED_MAX * self._thresholds.interval_s)
        self._measured_at = at

    def _told(self, log: LogActivity, phase: Phase) -> dict[Signal, float]:
        """What the server itself told of its progress."""
        told = {}
        if log.new_text:
            told[Signal.LOG] = self._now
        if log.counter_moved:
            told[Signal.COUNTER] = self._now
        if phase != self._phase:
            if phase not in self._needed:
                told[Signal.PHASE] = self._now
            self._phase, self._phase_since = phase, self._now
        return told

    def _note_expecting(self, expecting: bool) -> None:
        """An idle server may be silent; its silence begins to count with the first request."""
        if expecting and not self._expecting:
            self._progress_at = self._now
            self._doubts.forget()
        self._expecting = expecting

    def _note_signals(self, signals: Mapping[Signal, float]) -> None:
        self._computed_at = max(self._computed_at, signals.get(Signal.CPU, 0.0))
        progress_at = max((at for signal, at in signals.items() if signal not in COMPUTING), default=0.0)
        if progress_at > self._progress_at:
            self._progress_at = progress_at
            self._doubts.forget()

    def _note_repeats(self, log: LogActivity) -> None:
        if self._now in {self._progress_at, self._computed_at}:
            self._repeats = 0
        elif log.new_bytes > 0:
            self._repeats += 1

    def _note_nap(self) -> None:
        if self._nap is not None and self._nap.is_over(self._now, self._activity.processes):
            self._nap = None
            self._doubts.hasten(self._now + self._thresholds.woken_s)

    def _note_states(self, gone: Sequence[Exit]) -> None:
        stopped = (pid for pid, process in self._activity.processes.items() if process.state == "T")
        self._stopped_since = {pid: self._stopped_since.get(pid, self._now) for pid in stopped}
        self._losses.see(self._activity.processes.values(), gone, self._now)

    def _note_need(self, facts: Facts) -> None:
        """Remember the longest silence, unless it was somebody's signal that made it, or a nap that explains it."""
        need = self._needed.get(self._phase, Need(quiet_s=0.0, duration_s=0.0))
        counts = facts.expecting and not self._stopped_since and facts.signal_at != self._explained_at
        self._needed[self._phase] = Need(
            quiet_s=max(need.quiet_s, facts.quiet_s if counts else 0.0),
            duration_s=max(need.duration_s, self._now - self._phase_since),
        )

    # Judging

    def _facts(self) -> Facts:
        known = self._known.get(self._phase)
        allowed_s = max(self._thresholds.quiet_s, known.quiet_allowed_s if known else 0.0)
        cpu_only_s = self._thresholds.cpu_only_serving_s if self._serving else self._thresholds.cpu_only_s
        return Facts(
            now=self._now,
            progress_at=self._progress_at,
            computed_at=self._computed_at,
            stopped_since=self._stopped_since,
            lost_since=self._losses.since,
            peer_lost=self._losses.peer,
            expecting=self._expecting,
            allowed_s=allowed_s * (self._thresholds.blind_factor if self._blind else 1.0),
            cpu_only_s=cpu_only_s,
            processes=self._activity.processes,
            repeats=self._repeats,
        )

    def _end_stall(self, facts: Facts) -> None:
        """A stall is over when what made it one no longer holds."""
        if self._stalled is not None and self._is_over(self._stalled, facts):
            self._stalled = None
            self._doubts.forget()

    def _is_over(self, stalled: Suspicion, facts: Facts) -> bool:
        if stalled == Suspicion.STOPPED:
            return not stopped_for_good(facts, self._thresholds)
        if stalled == Suspicion.QUIET:
            return max(facts.progress_at, facts.computed_at) > self._stalled_at or not facts.expecting
        return facts.progress_at > self._stalled_at

    def _judge(self, facts: Facts) -> Judgement:
        suspicion = suspect(facts, self._thresholds)
        wants_look = suspicion is not None and self._stalled is None and self._doubts.look_due(suspicion, self._now)
        asleep = wording.asleep(self._nap, self._now) if self._nap and facts.quiet_s > 0 else ""
        motion, why = self._motion(facts, asleep)
        return Judgement(
            motion=motion,
            why=why + (wording.blind() if self._blind and motion == Motion.QUIET else ""),
            signals=tuple(self._activity.signals),
            quiet_s=self._quiet_s(facts),
            threshold_s=facts.allowed_s,
            wants_look=wants_look,
            suspicion=suspicion,
            busy_pids=facts.busy,
            stopped_pids=frozenset(facts.stopped_since),
            processes=tuple(facts.processes.values()),
            gaps=self._gaps,
            asleep=asleep if motion in {Motion.QUIET, Motion.STALLED} else "",
        )

    def _quiet_s(self, facts: Facts) -> float:
        """Of a stall that spins, or that one stopped process makes: since when nothing came of it."""
        if self._stalled == Suspicion.STOPPED:
            return max((facts.now - since for since in facts.stopped_since.values()), default=0.0)
        return facts.quiet_s if self._stalled in {None, Suspicion.QUIET} else facts.cpu_only_for_s

    def _motion(self, facts: Facts, asleep: str) -> tuple[Motion, str]:
        if self._stalled is not None:
            why = wording.stalled(self._stalled, facts, self._losses.lost)
            return Motion.STALLED, f"{why}; {asleep}" if asleep else why
        if facts.quiet_s > self._thresholds.floors.window_s:
            return Motion.QUIET, wording.quiet(facts, asleep) if facts.expecting else wording.idle()
        if facts.cpu_only_for_s >= self._thresholds.cpu_only_s and facts.expecting:
            return Motion.SLOW, wording.computing(facts) if facts.busy else wording.changing_stacks()
        return Motion.MOVING, wording.moving(self._activity, facts)


def _blind(measurement: Measurement) -> bool:
    """Whether silence means little: neither files nor sockets can be seen, or GPUs that are there do not tell."""
    reads = [sample.read_bytes for sample in measurement.samples.values()]
    no_files = bool(reads) and all(isinstance(read, Gap) for read in reads)
    return (no_files and isinstance(measurement.socket_bytes, Gap)) or isinstance(measurement.gpus, Gap)
