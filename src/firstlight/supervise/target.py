"""What can be watched: a server that was launched, or one that was running already."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from firstlight.core.gap import Gap
from firstlight.core.process import Exit, ProcessId
from firstlight.supervise.log.capture import LogFollower


class Target(Protocol):
    """A server, and how one learns of it."""

    root: ProcessId
    gaps: list[Gap]
    environ: Mapping[str, str]
    """The environment that the server was started in; empty where it may not be seen."""

    @property
    def own_pids(self) -> tuple[int, ...]:
        """The pids of firstlight itself."""
        ...

    def followers(self) -> Sequence[LogFollower]:
        """The logs that can be read."""
        ...

    def reported_exits(self) -> list[Exit]:
        """Exits that the target's own parent saw, with their status."""
        ...
