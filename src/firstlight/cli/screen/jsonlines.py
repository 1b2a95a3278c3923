"""The screen for scripts: one JSON object a line on stdout, as it happens, and nothing else."""

from firstlight.cli.screen.outlet import Outlet
from firstlight.core.events import Event
from firstlight.core.view import LiveView


class JsonScreen:
    """Writes every event at once."""

    def __init__(self, out: Outlet) -> None:
        self._out = out

    def event(self, event: Event) -> None:
        from firstlight.supervise.runs.journal import to_line

        self._out.write(to_line(event).decode())
        self._out.flush()

    def tick(self, view: LiveView) -> None:
        """Scripts are told of changes, not of each second."""

    def close(self) -> None:
        self._out.drain()
