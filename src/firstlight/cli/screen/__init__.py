"""What the user sees while a server is followed: a live view, plain lines, or JSON."""

import os
import sys
from typing import Protocol

from firstlight.clock import Clock
from firstlight.core.events import Event
from firstlight.core.view import LiveView


class Screen(Protocol):
    """Shows an attempt. None of its methods waits for a terminal or a pipe, or raises because it has gone away."""

    def event(self, event: Event) -> None:
        """Something happened. The verdict goes to stdout, all else to stderr; as JSON everything goes to stdout."""
        ...

    def tick(self, view: LiveView) -> None:
        """How things stand, about once a second."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was found; may be called more than once."""
        ...


def make_screen(clock: Clock, *, json: bool = False, show_log: bool = False) -> Screen:
    """The screen that fits: JSON if asked for, live on a terminal, else plain lines.

    With `show_log` every log line that comes as an event is shown, else only errors.
    """
    from firstlight.cli.screen.outlet import Outlet

    results = Outlet(sys.stdout)
    if json:
        from firstlight.cli.screen.jsonlines import JsonScreen

        return JsonScreen(results)
    out = Outlet(sys.stderr)
    if out.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from firstlight.cli.screen.live import LiveScreen

        return LiveScreen(clock, out, results, show_log=show_log)
    from firstlight.cli.screen.plain import PlainScreen

    return PlainScreen(out, results, show_log=show_log)
