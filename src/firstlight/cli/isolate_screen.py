"""What an isolation shows: a line for each trial, on a terminal a line that moves below them; or JSON for scripts."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from firstlight.cli.screen.outlet import Outlet
from firstlight.core.events import Event
from firstlight.core.record import Record
from firstlight.core.view import LiveView
from firstlight.core.words import printable, seconds
from firstlight.errors import FirstlightError

if TYPE_CHECKING:
    from firstlight.isolate.explain import Answer
    from firstlight.isolate.ladder import Ladder
    from firstlight.isolate.notebook import Begun
    from firstlight.isolate.trial import Trial

CLEAR = "\r\x1b[K"
HEARTBEAT_S = 30.0
Said: TypeAlias = "Begun | Trial"


class IsolateScreen:
    """Trials go to stderr as they come, the answer to stdout; as JSON both go to stdout."""

    def __init__(self, names: Iterable[str], *, as_json: bool) -> None:
        self._names = tuple(names)
        self._as_json = as_json
        self._err = Outlet(sys.stderr)
        self._out = Outlet(sys.stdout)
        self._live = self._err.isatty()
        self._doing = ""
        self._so_far = ""
        self._next_heartbeat = HEARTBEAT_S

    # A trial under way

    def event(self, event: Event) -> None:
        """The events of a trial are in its own run."""

    def tick(self, view: LiveView) -> None:
        """Where the server of the trial stands."""
        quiet = f", quiet for {seconds(view.quiet_s)}" if view.quiet_s >= 2 else ""
        words = f"{self._doing}: {view.phase}{quiet}, {seconds(view.elapsed_s)}"
        if self._live:
            columns = max(20, self._err.size[0] - 1)
            self._err.write(f"{CLEAR}{printable(words, columns)}")
        elif view.elapsed_s >= self._next_heartbeat:
            self._next_heartbeat = view.elapsed_s + HEARTBEAT_S
            self._say(f"     {words}")

    # Trials

    def begun(self, begun: "Begun", so_far: str) -> None:
        from firstlight.isolate.explain import setting_words

        self._next_heartbeat = HEARTBEAT_S
        self._doing = f"trial {begun.number}"
        if so_far != self._so_far:
            self._so_far = so_far
            self._say(f"     known so far: {so_far}")
        setting = setting_words(begun, self._names)
        self._say(f"{begun.number:>3}  {begun.why if setting in begun.why else f'{setting} ({begun.why})'}")

    def ended(self, trial: "Trial", *, remembered: bool) -> None:
        from firstlight.isolate.explain import setting_words
        from firstlight.isolate.problem import Outcome

        if self._as_json:
            self._json(trial)
        told = f"{trial.number:>3}  {trial.outcome}, {seconds(trial.seconds)}"
        if trial.outcome not in {Outcome.SAME, Outcome.UP}:
            told = f"{told}: {trial.what}"
        self._say(f"{told}  ({setting_words(trial, self._names)}; noted before)" if remembered else told)

    def said(self, what: str) -> None:
        self._say(f"     {what}")

    # The end

    def answer(self, answer: "Answer") -> None:
        from firstlight.isolate.explain import lines

        self._end(answer, lines(answer))

    def table(self, ladder: "Ladder") -> None:
        from firstlight.isolate.ladder import lines

        self._end(ladder, lines(ladder))

    def broken_off(self, error: FirstlightError, so_far: str, notebook: Path, *, again: bool) -> None:
        """It did not come to an end: what is known so far, and how to go on."""
        from firstlight.isolate.explain import BrokenOff

        if self._as_json:
            self._json(
                BrokenOff(
                    what=error.what,
                    way_out=error.way_out,
                    so_far=so_far,
                    notebook=str(notebook),
                    exit_code=error.exit_code,
                )
            )
        name = notebook.parent.name
        self._say(f"firstlight: {error.what}")
        for more in (error.way_out, f"Known so far: {so_far}" if so_far else ""):
            if more:
                self._say(f"  {more}")
        if again:
            self._say(f"  `firstlight isolate --resume {name} -- CMD …` goes on, and repeats no finished launch")

    def close(self) -> None:
        if self._live:
            self._err.write(CLEAR)
        self._err.drain()
        self._out.drain()

    def _end(self, record: Record, words: Iterable[str]) -> None:
        if self._as_json:
            self._json(record)
        else:
            self._say("")
            self._err.drain()
            self._out.write("".join(f"{line}\n" for line in words))

    def _json(self, record: Record) -> None:
        from firstlight.attempt import redacted_json

        self._out.write(redacted_json(record).decode() + "\n")

    def _say(self, words: str) -> None:
        self._err.write(f"{CLEAR if self._live else ''}{printable(words)}\n")
