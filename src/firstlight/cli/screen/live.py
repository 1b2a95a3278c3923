"""The screen for a terminal: a view redrawn in place once a second, and above it lines for what stays true."""

from collections.abc import Callable, Iterator
from typing import TextIO

from rich.console import Console, ConsoleOptions
from rich.live import Live
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from firstlight.cli.screen.draw import Line, draw
from firstlight.cli.screen.plain import ERROR_LINES_MAX
from firstlight.cli.screen.results import Results
from firstlight.cli.screen.sentences import is_alarm, is_error, sentence
from firstlight.clock import Clock
from firstlight.core.events import Event, LogSeen, MotionChanged, Verdict
from firstlight.core.view import LiveView
from firstlight.core.vocabulary import Motion
from firstlight.core.words import printable

REDRAW_S = 0.9
"""The least time between two pictures; whoever ticks faster is not followed."""


class LiveScreen:
    """Draws on `out`, which is a terminal; the verdict goes to `results`, which may be a pipe."""

    def __init__(self, clock: Clock, out: TextIO, results: TextIO, *, show_log: bool = False) -> None:
        self._clock = clock
        self._console = Console(file=out, highlight=False, emoji=False, markup=False)
        self._results = Results(results)
        self._show_log = show_log
        self._live: Live | None = None
        self._drawn = float("-inf")
        self._error_lines = 0
        self._gone = False

    def event(self, event: Event) -> None:
        if isinstance(event, Verdict):
            self.close()  # the report may go to the same terminal
            self._results.show(event.report)
        elif line := self._line(event):
            self._guarded(lambda: self._above(f"[{event.t:7.1f} s] {line}", "bold red" if is_alarm(event) else ""))

    def tick(self, view: LiveView) -> None:
        if self._clock.monotonic() - self._drawn >= REDRAW_S:
            self._drawn = self._clock.monotonic()
            self._guarded(lambda: self._show(view))

    def close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            self._guarded(live.stop)

    def _line(self, event: Event) -> str:
        if isinstance(event, LogSeen):
            self._error_lines += is_error(event)
            wanted = self._show_log or (is_error(event) and self._error_lines <= ERROR_LINES_MAX)
            return f"│ {printable(event.text)}" if wanted else ""
        if isinstance(event, MotionChanged) and event.motion != Motion.STALLED:
            return ""  # the view shows it
        return sentence(event)

    def _above(self, line: str, style: str) -> None:
        self._console.print(Text(line, style), soft_wrap=True)

    def _show(self, view: LiveView) -> None:
        picture = _Picture(view)
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

    def _guarded(self, write: Callable[[], None]) -> None:
        """The terminal may be closed at any time; the server is watched on."""
        if self._gone:
            return
        try:
            write()
        except (OSError, ValueError):
            self._gone = True


class _Picture:
    """The view for rich: ready-made pieces, so that there is nothing left to lay out."""

    def __init__(self, view: LiveView) -> None:
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for line in draw(self._view, options.max_width, max(1, console.height - 1)):
            yield from _segments(line)
            yield Segment.line()


def _segments(line: Line) -> Iterator[Segment]:
    for text, style in line:
        yield Segment(text, Style.parse(style) if style else None)  # rich caches parsed styles
