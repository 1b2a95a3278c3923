"""How long to wait for someone who may be slow: until nothing has moved for the deadline, not counting own pauses."""

import time

PAUSE_S = 0.5


class Patience:
    """Ends `deadline_s` after the last movement of what is watched.

    `ended` is to be asked every few milliseconds. If more than `pause_s` went by, then this process itself was not
    running (it was stopped, or the machine asleep), and could not have seen anything move.
    """

    def __init__(self, deadline_s: float, pause_s: float = PAUSE_S) -> None:
        self._deadline_s = deadline_s
        self._pause_s = pause_s
        self._seen: object = None
        self._asked_at = self._since = time.monotonic()

    def ended(self, watched: object) -> bool:
        """Whether `watched` has been the same for too long."""
        now = time.monotonic()
        if now - self._asked_at > self._pause_s:
            self._since += now - self._asked_at
        self._asked_at = now
        if watched != self._seen:
            self._seen, self._since = watched, now
        return self.waited_s > self._deadline_s

    @property
    def waited_s(self) -> float:
        return self._asked_at - self._since
