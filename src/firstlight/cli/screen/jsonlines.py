"""The screen for scripts: one JSON object a line on stdout, as it happens, and nothing else."""

from typing import TextIO

from firstlight.core.events import Event
from firstlight.core.view import LiveView


class JsonScreen:
    """Writes every event at once. When nobody reads any more it falls silent, and the server is watched on."""

    def __init__(self, out: TextIO) -> None:
        self._out: TextIO | None = out

    def event(self, event: Event) -> None:
        from firstlight.supervise.journal import to_line

        if self._out is None:
            return
        try:
            self._out.write(to_line(event).decode())
            self._out.flush()
        except (OSError, ValueError):  # ValueError: the file has been closed
            self._out = None

    def tick(self, view: LiveView) -> None:
        """Scripts are told of changes, not of each second."""

    def close(self) -> None:
        """Nothing to restore."""
