"""The verdict on stdout, where it can be piped; everything else that a screen says goes elsewhere."""

import os
from typing import TextIO

from firstlight.core.report import Report

NARROW = 60
WIDE = 100


class Results:
    """Prints reports. A report that says nothing new (the server still serves when the user leaves) is one line."""

    def __init__(self, out: TextIO) -> None:
        self._out: TextIO | None = out
        self._last = ""

    def show(self, report: Report) -> None:
        from firstlight.report.terminal import terminal

        news = f"{report.outcome} {report.phase} {report.bundle}"
        colour = self._out is not None and self._out.isatty() and not os.environ.get("NO_COLOR")
        text = terminal(report, width=_width(self._out), colour=colour) if news != self._last else report.headline
        self._last = news
        self._print(text)

    def _print(self, text: str) -> None:
        if self._out is None:
            return
        try:
            self._out.write(text.rstrip("\n") + "\n")
            self._out.flush()
        except (OSError, ValueError):  # nobody reads any more; the server is watched on
            self._out = None


def _width(out: TextIO | None) -> int:
    """The terminal's width within what can be read well."""
    try:
        return max(NARROW, min(os.get_terminal_size(out.fileno()).columns, WIDE)) if out else WIDE
    except (OSError, ValueError):
        return WIDE
