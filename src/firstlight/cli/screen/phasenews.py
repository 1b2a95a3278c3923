"""Phases of many processes told as the phases of one server."""

from firstlight.core.events import Event, PhaseBegan, PhaseEnded
from firstlight.core.vocabulary import Phase
from firstlight.core.words import printable, seconds

SOURCE_CHARS = 24


class PhaseNews:
    """Says when the first process enters a phase and when the last one leaves it, and nothing in between.

    Once phases of more than one process have been told of, it says whose.
    """

    def __init__(self) -> None:
        self._inside: dict[Phase, set[str]] = {}
        self._began: dict[Phase, float] = {}
        self._ever: dict[Phase, set[str]] = {}
        self._sources: set[str] = set()

    def see(self, event: Event) -> str:
        """A line to show, or nothing."""
        if isinstance(event, PhaseBegan):
            return self._begin(event)
        if isinstance(event, PhaseEnded):
            return self._end(event)
        return ""

    def _begin(self, event: PhaseBegan) -> str:
        self._sources.add(event.source)
        inside = self._inside.setdefault(event.phase, set())
        first = not inside
        if first:
            self._began[event.phase] = event.t
            self._ever[event.phase] = set()
        inside.add(event.source)
        self._ever[event.phase].add(event.source)
        return f"{event.phase} began{self._whose(event.source)}" if first else ""

    def _end(self, event: PhaseEnded) -> str:
        inside = self._inside.get(event.phase)
        if not inside or event.source not in inside:
            return ""
        inside.discard(event.source)
        if inside:
            return ""
        many = len(self._ever[event.phase])
        if many > 1:
            return f"{event.phase} took {seconds(event.t - self._began[event.phase])} in {many} processes"
        return f"{event.phase} took {seconds(event.seconds)}{self._whose(event.source)}"

    def _whose(self, source: str) -> str:
        return f" in {printable(source, SOURCE_CHARS)}" if source and len(self._sources) > 1 else ""
