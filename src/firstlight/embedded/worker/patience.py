"""How long to wait for someone who may be slow: until nothing has moved for the deadline, not counting own pauses."""

import time

PAUSE_S = 0.5
"""A step of the waiting loop takes milliseconds; one that took longer was a pause of this process itself (stopped, or
the machine asleep), in which it could not have seen anything move."""


class Patience:
    """Ends `deadline_s` after the last movement of what is watched. Ask `ended` every few milliseconds."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._seen: object = None
        self._asked_at = self._since = time.monotonic()

    def ended(self, watched: object) -> bool:
        """Whether `watched` has been the same for too long."""
        now = time.monotonic()
        if now - self._asked_at > PAUSE_S:
            self._since += now - self._asked_at
        self._asked_at = now
        if watched != self._seen:
            self._seen, self._since = watched, now
        return self.waited_s > self._deadline_s

    @property
    def waited_s(self) -> float:
        return self._asked_at - self._since
