"""When to look deeper, and what two looks prove. Pure: facts in, an opinion out.

| suspicion | arises                                                        | a stall if the looks show     |
|-----------|---------------------------------------------------------------|-------------------------------|
| stopped   | a process that matters was stopped by a signal                | that it is stopped still      |
| lost      | a rank has exited, and the rest show nothing but CPU          | nobody moves, busy ones spin  |
| quiet     | no signal at all, for as long as this phase is allowed        | nobody moves or wants a CPU   |
| cpu only  | somebody computes for long, and nothing else tells            | they spin for a missing peer  |

Where the looks show somebody asleep who may go on when the clock wakes them (`naps`), what they prove is put off
until then; not of a process that was stopped, nor of a peer that is gone.

A compiler or helper that is stopped matters only once everything else is silent too. Computing is never a stall by
itself: an in-process compile of ten minutes looks like this, and only an unchanged busy-wait *and* a missing peer
tell it from a spin. From outside, one long native step (a driver that compiles, a solver) looks like a busy-wait, and
one rank that compiles while its peers wait blocked is a healthy start. So a peer that is only blocked counts as
missing when most of the ranks spin for it, and after `blocked_s` of nothing but CPU: that is how a collective looks
that one rank never entered. Where a proof is weaker, as where a busy process could not be seen, it must hold twice.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from firstlight.core.record import Record
from firstlight.core.vocabulary import Role
from firstlight.supervise.liveness.activity import ProcessMotion
from firstlight.supervise.liveness.floors import Floors

WEAK_PROOFS = 2
CROWD_MIN = 2
"""Ranks that must spin alike before a blocked one is blamed; one alone may just be busy with a long native step."""


class Suspicion(StrEnum):
    """Why two looks are wanted, the most certain first."""

    STOPPED = "stopped"
    LOST = "lost"
    QUIET = "quiet"
    CPU_ONLY = "cpu only"


class Thresholds(Record):
    """When to look, in seconds.

    Two looks some 5 s apart take about 7 s, and a weak proof is asked for twice: 12 + 7 + 1 + 7 = 27 s keep the
    promise to report a silent stall within 30 s of its last progress. `lost_s` lets a server that falls by itself
    fall, most need a second or two. After looks that showed life the next wait is longer, up to the last of its list,
    until there is a real signal again. `blind_factor`: with neither bytes nor sockets to see, or with a GPU that does
    not answer, silence means less. `nap_s` and `naps_s` bound the sleeps that are waited for, as `naps` says; a look
    follows `woken_s` after one is over.
    """

    interval_s: float = 1.0
    quiet_s: float = 12.0
    cpu_only_s: float = 12.0
    cpu_only_serving_s: float = 60.0
    stopped_s: float = 5.0
    lost_s: float = 8.0
    blocked_s: float = 60.0
    again_s: float = 1.0
    quiet_waits_s: tuple[float, ...] = (10.0, 20.0, 40.0)
    cpu_only_waits_s: tuple[float, ...] = (15.0, 30.0, 60.0)
    blind_factor: float = 2.0
    nap_s: float = 12.0
    naps_s: float = 125.0
    woken_s: float = 2.0
    floors: Floors = Floors()


class Facts(NamedTuple):
    """All that an opinion needs. Times are on one axis, in seconds.

    `progress_at` dates the last signal other than CPU, `computed_at` the last of CPU or of stacks that changed.
    `stopped_since` holds by pid when a process was first found stopped. `lost_since` dates the last loss of one,
    `peer_lost` is true if a peer is certainly among the lost. `expecting` is false for an idle server. `repeats`
    counts the updates since the last signal in which the log grew by nothing but what it had said before.
    """

    now: float
    progress_at: float
    computed_at: float
    stopped_since: Mapping[int, float]
    lost_since: float | None
    peer_lost: bool
    expecting: bool
    allowed_s: float
    cpu_only_s: float
    processes: Mapping[int, ProcessMotion]
    repeats: int = 0

    @property
    def signal_at(self) -> float:
        """When the last signal came."""
        return max(self.progress_at, self.computed_at)

    @property
    def quiet_s(self) -> float:
        """Seconds without any signal."""
        return max(0.0, self.now - self.signal_at)

    @property
    def cpu_only_for_s(self) -> float:
        """Seconds without any signal but CPU."""
        return max(0.0, self.now - self.progress_at)

    @property
    def busy(self) -> frozenset[int]:
        return frozenset(pid for pid, process in self.processes.items() if process.busy)


class Sleep(Record):
    """What a look showed of a process that only the clock wakes: at most `seconds` after `seen_at` (monotonic).

    Where not `exact`, `seconds` is how long it sleeps in all, and it began at some time before. `slept_s` is how long
    it had slept by then at least; None where it is the main thread that sleeps, of which that is measured.
    """

    seconds: float
    seen_at: float
    exact: bool
    slept_s: float | None = None


class Confirmation(Record):
    """What two looks some seconds apart showed of each process, by pid.

    `still`: same stacks, no CPU and no I/O worth the name. `spinning`: CPU, but in the same busy-wait both times.
    `moving`: something changed that means work. Everything else could not be told: no permission, not Python, gone.
    `sleeps` are those whom only the clock wakes.
    """

    still: frozenset[int] = frozenset()
    spinning: frozenset[int] = frozenset()
    moving: frozenset[int] = frozenset()
    sleeps: Mapping[int, Sleep] = {}


class Proof(StrEnum):
    """What a confirmation is worth."""

    NONE = "none"
    WEAK = "weak"
    FULL = "full"


def matters(process: ProcessMotion) -> bool:
    """Whether the server cannot go on without such a process."""
    return process.role not in {Role.HELPER, Role.COMPILER}


def stopped_for_good(facts: Facts, thresholds: Thresholds) -> frozenset[int]:
    """Processes whose being stopped by a signal explains, or will soon explain, a stall."""
    silent = facts.cpu_only_for_s >= thresholds.stopped_s
    return frozenset(
        pid
        for pid, since in facts.stopped_since.items()
        if facts.now - since >= thresholds.stopped_s and (silent or matters(facts.processes[pid]))
    )


def suspect(facts: Facts, thresholds: Thresholds) -> Suspicion | None:
    """The gravest reason to look deeper, if there is one."""
    if stopped_for_good(facts, thresholds):
        return Suspicion.STOPPED
    if _missed(facts, thresholds):
        return Suspicion.LOST
    if not facts.expecting:
        return None
    if facts.quiet_s >= facts.allowed_s:
        return Suspicion.QUIET
    if facts.busy and facts.cpu_only_for_s >= facts.cpu_only_s:
        return Suspicion.CPU_ONLY
    return None


def _missed(facts: Facts, thresholds: Thresholds) -> bool:
    """Whether the server has had its time to fall by itself, or to show that it does without the lost process."""
    if facts.lost_since is None or not (facts.peer_lost or facts.expecting):
        return False
    return facts.now - max(facts.lost_since, facts.progress_at) >= thresholds.lost_s


def weigh(suspicion: Suspicion, facts: Facts, confirmation: Confirmation, thresholds: Thresholds) -> Proof:
    """What two looks prove of a suspicion that the facts still bear out."""
    if suspicion == Suspicion.STOPPED:
        return Proof.FULL
    if confirmation.moving & facts.processes.keys():
        return Proof.NONE
    if suspicion == Suspicion.QUIET:
        return _weigh_quiet(facts, confirmation, thresholds)
    unexplained = facts.busy - confirmation.spinning
    if suspicion == Suspicion.LOST:
        return _weigh_loss(facts, unexplained, thresholds)
    return Proof.NONE if unexplained else _weigh_spin(facts, confirmation, thresholds)


def _weigh_loss(facts: Facts, unexplained: frozenset[int], thresholds: Thresholds) -> Proof:
    """Full if nobody computes, or only spins for a peer; weak where one of the two is in doubt."""
    if not facts.busy or (facts.peer_lost and not unexplained):
        return Proof.FULL
    return Proof.WEAK if facts.peer_lost else Proof.NONE


def _weigh_quiet(facts: Facts, confirmation: Confirmation, thresholds: Thresholds) -> Proof:
    """Full, unless a process that could not be seen uses some CPU; none if one computes and a crowd starves it."""
    if confirmation.spinning & facts.processes.keys():
        return Proof.NONE
    unseen = (process for pid, process in facts.processes.items() if pid not in confirmation.still)
    return Proof.WEAK if any(process.cpu_cores >= thresholds.floors.weak_cores for process in unseen) else Proof.FULL


def _weigh_spin(facts: Facts, confirmation: Confirmation, thresholds: Thresholds) -> Proof:
    """Full if a peer is stopped, weak if most ranks have long spun while a few are blocked, none otherwise."""
    if facts.stopped_since:
        return Proof.FULL
    ranks = {pid for pid, process in facts.processes.items() if process.rank >= 0 or process.role == Role.WORKER}
    spinning, blocked = ranks & confirmation.spinning, ranks & confirmation.still
    crowd = blocked and len(spinning) >= CROWD_MIN and len(spinning) > len(blocked)
    return Proof.WEAK if crowd and facts.cpu_only_for_s >= thresholds.blocked_s else Proof.NONE


class Doubts:
    """When the next look is due, and what the looks so far have proved."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._looked: dict[Suspicion, int] = {}
        self._weak: dict[Suspicion, int] = {}
        self._due: dict[Suspicion, float] = {}
        self._put_off: dict[Suspicion, float] = {}

    def forget(self) -> None:
        """A real signal came: begin anew."""
        self._looked.clear()
        self._weak.clear()
        self._due.clear()
        self._put_off.clear()

    def look_due(self, suspicion: Suspicion, now: float) -> bool:
        """Whether it is time to look for this reason."""
        return now >= max(self._due.get(suspicion, now), self._put_off.get(suspicion, now))

    def put_off(self, suspicion: Suspicion, until: float) -> None:
        """Do not look for this reason before: somebody sleeps until then."""
        self._put_off[suspicion] = until

    def hasten(self, at: float) -> None:
        """Whoever slept has woken: look at `at` at the latest for what was put off."""
        self._put_off = {suspicion: min(until, at) for suspicion, until in self._put_off.items()}

    def convinced(self, suspicion: Suspicion, proof: Proof, now: float) -> bool:
        """Take in what two looks proved; whether that makes it a stall."""
        if proof == Proof.WEAK:
            self._weak[suspicion] = self._weak.get(suspicion, 0) + 1
            self._due[suspicion] = now + self._thresholds.again_s
            return self._weak[suspicion] >= WEAK_PROOFS
        if proof == Proof.NONE:
            self._weak.pop(suspicion, None)
            self._due[suspicion] = now + self._wait(suspicion)
        return proof == Proof.FULL

    def _wait(self, suspicion: Suspicion) -> float:
        cpu_only = suspicion == Suspicion.CPU_ONLY
        waits = self._thresholds.cpu_only_waits_s if cpu_only else self._thresholds.quiet_waits_s
        times = self._looked.get(suspicion, 0)
        self._looked[suspicion] = times + 1
        return waits[min(times, len(waits) - 1)]
