"""The stall that is expected: known again at once, where an unknown one must first be waited for.

Whoever launches the same server again and again knows what its stall looks like. Three seconds of silence in the
right phase, and two looks between which nothing moved and which show the very same waits, are then enough. Patience
that was learnt or is owed stays: where earlier good starts were quiet for long in this phase, where silence means
less because little can be seen, or where somebody sleeps who will soon wake, nothing is cut short.
"""

from collections.abc import Callable, Mapping

from firstlight.core.graph import Signature
from firstlight.core.vocabulary import Motion, Phase
from firstlight.diagnose import Change, Difference
from firstlight.supervise.liveness.judge import Judgement, Thresholds
from firstlight.supervise.liveness.naps import is_awaited, longest_nap
from firstlight.supervise.liveness.suspicion import Sleep

WHY = "it is as quiet as in the stall that is known"
QUIET_S = 3.0
APART_S = 2.0
AGAIN_S = 5.0
"""Until the next looks where these showed something else; each pauses processes for milliseconds."""


class KnownStall:
    """Decides when to look for it, and whether it is there."""

    def __init__(self, known: Signature | None) -> None:
        self._known = known
        self._not_before = 0.0
        self.seen = False

    def wants_look(self, judgement: Judgement, phase: Phase, now: float) -> bool:
        """Whether the server stands as it would in that stall; `now` is monotonic."""
        return (
            self._known is not None
            and now >= self._not_before
            and phase.value == self._known.phase
            and judgement.motion in {Motion.MOVING, Motion.QUIET}
            and judgement.quiet_s >= QUIET_S
            and judgement.threshold_s <= Thresholds().quiet_s
        )

    def take(
        self,
        seen: Difference,
        sleeps: Mapping[int, Sleep],
        judgement: Judgement,
        now: float,
        signature: Callable[[], Signature | None],
    ) -> None:
        """Compare what two looks showed with what is known; `signature` is that of the looks."""
        self._not_before = now + AGAIN_S
        quiet = judgement.quiet_s >= QUIET_S + APART_S and seen.change is Change.STILL
        if self._known is not None and quiet and not _is_explained(judgement, sleeps, now):
            found = signature()
            self.seen = found is not None and found.digest == self._known.digest


def _is_explained(judgement: Judgement, sleeps: Mapping[int, Sleep], now: float) -> bool:
    """Whether somebody naps whose waking would be waited for."""
    processes = {process.id.pid: process for process in judgement.processes}
    silent_s, thresholds = judgement.quiet_s, Thresholds()
    found = longest_nap(sleeps, processes, at=now, silent_s=silent_s, thresholds=thresholds)
    return found is not None and is_awaited(found[1], silent_s, thresholds)
