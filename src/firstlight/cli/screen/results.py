"""The verdict on stdout, where it can be piped; everything else that a screen says goes elsewhere."""

import os
from typing import TextIO

from firstlight.cli.screen.outlet import Outlet
from firstlight.core.report import Report
from firstlight.core.words import printable

NARROW = 60
WIDE = 100


class Results:
    """Prints reports. A report that says nothing new (the server still serves when the user leaves) is one line."""

    def __init__(self, out: Outlet) -> None:
        self._out = out
        self._last = ""

    def show(self, report: Report) -> None:
        from firstlight.report.terminal import terminal

        news = f"{report.outcome} {report.phase} {report.bundle}"
        full = terminal(report, width=width_of(self._out), colour=wants_colour(self._out))
        self._out.write(full if news != self._last else f"{printable(report.headline)}\n")
        self._out.flush()
        self._last = news

    def close(self) -> None:
        """Wait until it is written, within bounds."""
        self._out.drain()


def wants_colour(out: Outlet | TextIO) -> bool:
    """True on a terminal, unless the user asked for none (https://no-color.org)."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width_of(out: Outlet | TextIO) -> int:
    """The terminal's width within what can be read well."""
    try:
        return max(NARROW, min(os.get_terminal_size(out.fileno()).columns, WIDE))
    except (OSError, ValueError):
        return WIDE
