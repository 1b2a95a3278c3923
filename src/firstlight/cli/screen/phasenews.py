"""Phases of many processes told as the phases of one server."""

from firstlight.core.events import Event, PhaseBegan, PhaseEnded
from firstlight.core.vocabulary import Phase
from firstlight.core.words import seconds


class PhaseNews:
    """Says when the first process enters a phase and when the last one leaves it, and nothing in between."""

    def __init__(self) -> None:
        self._inside: dict[Phase, set[str]] = {}
        self._began: dict[Phase, float] = {}
        self._ever: dict[Phase, set[str]] = {}

    def see(self, event: Event) -> str:
        """A line to show, or nothing."""
        if isinstance(event, PhaseBegan):
            return self._begin(event)
        if isinstance(event, PhaseEnded):
            return self._end(event)
        return ""

    def _begin(self, event: PhaseBegan) -> str:
        inside = self._inside.setdefault(event.phase, set())
        first = not inside
        if first:
            self._began[event.phase] = event.t
            self._ever[event.phase] = set()
        inside.add(event.source)
        self._ever[event.phase].add(event.source)
        return f"{event.phase} began" if first else ""

    def _end(self, event: PhaseEnded) -> str:
        inside = self._inside.get(event.phase)
        if not inside or event.source not in inside:
            return ""
        inside.discard(event.source)
        if inside:
            return ""
        many = len(self._ever[event.phase])
        took = seconds(event.t - self._began[event.phase] if many > 1 else event.seconds)
        return f"{event.phase} took {took}" + (f" in {many} processes" if many > 1 else "")
