"""Looks at a server that is about to be given up: at whoever outlived its first process, and at one that is late."""

from firstlight.attempt.looker import TwoLooks
from firstlight.attempt.looking import Looking
from firstlight.clock import Clock
from firstlight.supervise.watch import Watch

ORPHANS_GRACE_S = 3.0
"""Ranks of a server whose first process has ended usually follow within a second or two."""
ORPHANS_WAIT_S = 45.0
ORPHANS_WHY = "the server's first process has ended, and others of it live on"
LATE_WHY = "the deadline has passed"
LATE_APART_S = 2.0
LATE_WAIT_S = 8.0
LOOKED_LATELY_S = 10.0
"""Looks that are no older tell where a server stood that did not make it in time."""


class LastLooks:
    """When they are begun, and whether they have been taken, or will not be in time."""

    def __init__(self, watch: Watch, looking: Looking, clock: Clock) -> None:
        self._watch = watch
        self._looking = looking
        self._clock = clock
        self._root_gone_at = 0.0
        self._late_at = 0.0

    @property
    def late(self) -> bool:
        """Whether the deadline was found to have passed."""
        return bool(self._late_at)

    def orphans_seen(self, looks: TwoLooks | None) -> bool:
        """Whether those who outlived the server's first process are gone too, or have been looked at.

        A rank that waits for the dead is the other half of the story, so it is seen before it is ended.
        """
        now = self._clock.monotonic()
        self._root_gone_at = self._root_gone_at or now
        if not self._watch.processes or after_the_end(looks) or now - self._root_gone_at > ORPHANS_WAIT_S:
            return True
        if now - self._root_gone_at >= ORPHANS_GRACE_S:
            self._looking.begin(ORPHANS_WHY, self._watch.port)
        return False

    def late_one_seen(self, looks: TwoLooks | None, looked_at: float) -> bool:
        """Whether a server that is late has been looked at lately, or will not be in time.

        One that moves all along is never looked at before, and who stands where is what the user asks next.
        `looks` are the latest that still hold, taken at `looked_at` by the monotonic clock.
        """
        now = self._clock.monotonic()
        lately = looks is not None and now - looked_at <= LOOKED_LATELY_S
        if not self._late_at:
            self._late_at = now
            if not lately:
                self._looking.begin(LATE_WHY, self._watch.port, LATE_APART_S)
        return lately or not self._looking.running or now - self._late_at > LATE_WAIT_S


def after_the_end(looks: TwoLooks | None) -> bool:
    """Whether these are looks at those who outlived the server's first process."""
    return looks is not None and looks.why == ORPHANS_WHY
