"""The screen for a terminal: a view redrawn in place once a second, and above it lines for what stays true."""

import contextlib
from collections.abc import Iterator
from typing import IO, cast

from rich.console import Console, ConsoleDimensions, ConsoleOptions
from rich.live import Live
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from firstlight.cli.screen.draw import Line, draw
from firstlight.cli.screen.outlet import Outlet
from firstlight.cli.screen.plain import ERROR_LINES_MAX
from firstlight.cli.screen.results import Results
from firstlight.cli.screen.sentences import is_alarm, is_error, sentence, stays
from firstlight.clock import Clock
from firstlight.core import redact
from firstlight.core.events import Event, LogSeen, MotionChanged, Stopped, Stopping, Verdict
from firstlight.core.view import LiveView
from firstlight.core.vocabulary import Motion
from firstlight.core.words import printable

REDRAW_S = 0.9
"""The least time between two pictures; whoever ticks faster is not followed."""

ENDING_NOW = "ending the server, up to 10 s; Ctrl-C now kills it at once"


class LiveScreen:
    """Draws on `out`, a terminal; the verdict goes to `results`, which may be a pipe."""

    def __init__(self, clock: Clock, out: Outlet, results: Outlet, *, show_log: bool = False) -> None:
        self._clock = clock
        self._out = out
        self._console = Console(file=cast(IO[str], out), highlight=False, emoji=False, markup=False)
        self._results = Results(results)
        self._show_log = show_log
        self._live: Live | None = None
        self._drawn = float("-inf")
        self._error_lines = 0
        self._view: LiveView | None = None
        self._ending = ""

    def event(self, event: Event) -> None:
        if isinstance(event, Verdict):
            self._wipe()  # the report may go to the same terminal
            self._results.show(event.report)
            self._say(event, stays(event.report, ending=bool(self._ending)))
        else:
            self._say(event, self._line(event))
        if isinstance(event, Stopping):
            self._ending = ENDING_NOW
            self._redraw()
        elif isinstance(event, Stopped):
            self._wipe()

    def tick(self, view: LiveView) -> None:
        if self._clock.monotonic() - self._drawn < REDRAW_S or self._out.behind:
            return  # a terminal that takes nothing (Ctrl-S) is shown the newest picture once it does again
        self._view = view
        self._redraw()

    def _redraw(self) -> None:
        if self._view is None:
            return
        self._drawn = self._clock.monotonic()
        with contextlib.suppress(OSError):  # it has just been closed; what is drawn now is dropped
            self._console.size = ConsoleDimensions(*self._out.size)
        picture = _Picture(self._view, self._ending)
        if self._live is None:
            self._live = Live(
                picture,
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(picture, refresh=True)

    def close(self) -> None:
        self._wipe()
        self._results.close()

    def _wipe(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        self._out.drain()

    def _say(self, event: Event, line: str) -> None:
        if line:
            style = "bold red" if is_alarm(event) else ""
            self._console.print(Text(f"[{event.t:7.1f} s] {redact.text(line)}", style), soft_wrap=True)

    def _line(self, event: Event) -> str:
        if isinstance(event, LogSeen):
            self._error_lines += is_error(event)
            wanted = self._show_log or (is_error(event) and self._error_lines <= ERROR_LINES_MAX)
            return f"│ {printable(event.text)}" if wanted else ""
        if isinstance(event, MotionChanged) and event.motion != Motion.STALLED:
            return ""  # the view shows it
        return sentence(event)


class _Picture:
    """The view for rich: ready-made pieces, so that there is nothing left to lay out."""

    def __init__(self, view: LiveView, ending: str) -> None:
        self._view = view
        self._ending = ending

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for line in draw(self._view, options.max_width, max(1, console.height - 1), ending=self._ending):
            yield from _segments(line)
            yield Segment.line()


def _segments(line: Line) -> Iterator[Segment]:
    for text, style in line:
        yield Segment(text, Style.parse(style) if style else None)  # rich caches parsed styles
