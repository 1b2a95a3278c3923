"""Which sleep is worth waiting for before silence is called a stall. Pure.

Who sleeps has said when it wakes, and may then go on: servers sleep between two attempts to reach something. A sleep
as long as the silence that makes one look (`nap_s`) is such a *nap*. A shorter one is a poll: whoever sleeps so has
woken since the last sign of progress, to no avail. A nap is waited for if it ends within `naps_s` of that sign, so
that attempt after attempt without success is found in the end; of one that lasts longer nothing would be learnt.
"""

from collections.abc import Mapping
from typing import NamedTuple

from firstlight.core.process import ProcessId
from firstlight.supervise.liveness.activity import ProcessMotion
from firstlight.supervise.liveness.suspicion import Facts, Sleep, Suspicion, Thresholds, matters

STIRRED_S = 1.5
"""When a wait began is known to within an interval of samples; what began by so much later is another."""


class Nap(NamedTuple):
    """Who sleeps, since when, and until when at the latest, on the axis of `Facts.now`."""

    id: ProcessId
    name: str
    since: float
    until: float

    def is_over(self, now: float, processes: Mapping[int, ProcessMotion]) -> bool:
        """Whether it has ended, by the clock or before: a wait that began since is another, be it a sleep again."""
        sleeper = processes.get(self.id.pid)
        if sleeper is None or sleeper.id != self.id or now >= self.until:
            return True
        return sleeper.waiting_s is not None and now - sleeper.waiting_s > self.since + STIRRED_S


def longest_nap(
    sleeps: Mapping[int, Sleep],
    processes: Mapping[int, ProcessMotion],
    *,
    at: float,
    silent_s: float,
    thresholds: Thresholds,
) -> tuple[ProcessMotion, float] | None:
    """Whose nap goes on longest of those worth waiting for after a silence of `silent_s`, and for how many seconds
    yet; the longest of all if none is worth it; None if nobody naps. `at` is now, by the clock of `Sleep.seen_at`.
    """
    napping = [
        (max(0.0, left_s), process)
        for pid, sleep in sleeps.items()
        if (process := processes.get(pid)) is not None and matters(process)
        for left_s, whole_s in [_times(sleep, process, at)]
        if whole_s >= thresholds.nap_s
    ]
    awaited = [one for one in napping if is_awaited(one[0], silent_s, thresholds)]
    left_s, process = max(awaited or napping, key=lambda one: one[0], default=(0.0, None))
    return None if process is None else (process, left_s)


def is_awaited(left_s: float, silent_s: float, thresholds: Thresholds) -> bool:
    """Whether a nap that goes on for `left_s` after a silence of `silent_s` ends soon enough to wait for it."""
    return silent_s + left_s <= thresholds.naps_s


def _times(sleep: Sleep, process: ProcessMotion, at: float) -> tuple[float, float]:
    """How long it goes on from `at` at most, and how long it lasts in all, as far as it was seen."""
    left_s = sleep.seen_at + sleep.seconds - at
    slept_s = process.waiting_s or 0.0 if sleep.slept_s is None else sleep.slept_s + at - sleep.seen_at
    return (left_s, left_s + slept_s) if sleep.exact else (min(left_s, sleep.seconds - slept_s), sleep.seconds)


def nap_of(
    sleeps: Mapping[int, Sleep], suspicion: Suspicion, facts: Facts, *, at: float, thresholds: Thresholds
) -> Nap | None:
    """The nap that may best explain what is suspected; `at` is `facts.now` by the clock of `Sleep.seen_at`."""
    silent_s = facts.now - _silent_since(suspicion, facts)
    found = longest_nap(sleeps, facts.processes, at=at, silent_s=silent_s, thresholds=thresholds)
    if found is None:
        return None
    process, left_s = found
    return Nap(process.id, process.name, facts.now - (process.waiting_s or 0.0), facts.now + left_s)


def explains(nap: Nap, suspicion: Suspicion, facts: Facts, thresholds: Thresholds) -> bool:
    """Whether a nap may be the reason of what is suspected, and ends soon enough to wait for it.

    Those who spin may spin for somebody who sleeps. A peer that is gone stays away all the same.
    """
    if suspicion == Suspicion.STOPPED or (suspicion == Suspicion.LOST and facts.peer_lost):
        return False
    return is_awaited(nap.until - facts.now, facts.now - _silent_since(suspicion, facts), thresholds)


def _silent_since(suspicion: Suspicion, facts: Facts) -> float:
    return facts.progress_at if suspicion == Suspicion.CPU_ONLY else facts.signal_at
