"""What earlier good starts of the same engine needed here: recalled for this start, and learnt from it."""

from firstlight.core import redact
from firstlight.core.gap import Gap
from firstlight.core.server import ServerCommand
from firstlight.supervise.liveness.history import History
from firstlight.supervise.liveness.judge import Liveness
from firstlight.supervise.log.phases import PhaseTracker


class EarlierStarts:
    """Between the history, which is kept, and liveness, which judges one start."""

    def __init__(self, history: History, liveness: Liveness, phases: PhaseTracker, command: ServerCommand) -> None:
        self._history = history
        self._liveness = liveness
        self._phases = phases
        self._command = command
        self._version: str | None = None
        self.gaps: set[Gap] = set()

    def recall(self) -> None:
        """Once the engine's version is known, expect what its earlier good starts needed here."""
        if self._version == self._phases.version:
            return
        self._version = self._phases.version
        needs = self._history.needs(self._kind, self._version)
        if isinstance(needs, Gap):
            self.gaps.add(needs)
        else:
            self._liveness.expect(needs)

    def learn(self, at: float) -> None:
        """Remember this good start; `at` is wall time."""
        gap = self._history.learn(self._kind, self._phases.version, self._liveness.needed, at)
        if gap is not None:
            self.gaps.add(gap)

    @property
    def _kind(self) -> str:
        """What the history files a start under. Servers of unknown kind have only their command in common."""
        name = self._phases.profile.name
        return f"generic:{' '.join(redact.command(self._command.argv))[:200]}" if name == "generic" else name
