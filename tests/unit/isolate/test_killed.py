"""Killed at every line of the notebook, before it, in the midst of it and after it: it goes on to the same answer."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from firstlight.attempt import Interrupts
from firstlight.clock import HandClock
from firstlight.core.graph import Signature
from firstlight.core.report import Report
from firstlight.core.vocabulary import Outcome as End
from firstlight.core.vocabulary import Phase
from firstlight.isolate.commands import Commands
from firstlight.isolate.explain import Answer
from firstlight.isolate.isolate import isolate
from firstlight.isolate.notebook import Begun, Ended, Entry, Notebook, begin, read, reopen
from firstlight.isolate.sitting import Sitting, Wishes
from firstlight.isolate.trial import Trial

ARGV = ("./serve", "--a", "--b", "--c", "--d", "--e")
GUILTY = {"b", "e"}
STALL = Signature(digest="aaaa", phase="weights", waits=())
WAYS = ("before", "torn", "after")


class Killed(BaseException):
    """As if by SIGKILL: nobody handles it."""


class Silent:
    """Watches, and keeps what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def event(self, event: Any) -> None: ...
    def tick(self, view: Any) -> None: ...
    def begun(self, begun: Any, so_far: str) -> None: ...
    def ended(self, trial: Any, *, remembered: bool) -> None: ...

    def said(self, what: str) -> None:
        self.lines.append(what)


class Ruled(Sitting):
    """Its servers stall by rule, and take no time."""

    def _launched(self, asked: Begun) -> Trial:
        self._launches += 1
        guilty = set(asked.setting) >= GUILTY
        report = Report(
            run="r",
            outcome=End.STALLED if guilty else End.SERVING,
            headline="",
            engine="generic",
            engine_version="",
            command=(),
            started=1.0,
            ended=2.0,
            phase=Phase.WEIGHTS,
            signature=STALL if guilty else None,
        )
        return self._noted(asked, report, "", 1.0)


class Mortal(Notebook):
    """Dies at its `last` line, in one of `WAYS`."""

    last = 0
    way = ""

    def write(self, entry: Entry) -> None:
        self.last -= 1
        if self.last != 0:
            super().write(entry)
            return
        if self.way != "before":
            super().write(entry)
        if self.way == "torn":
            data = self.path.read_bytes()
            self.path.write_bytes(data[: -len(data.splitlines()[-1]) // 2])
        raise Killed


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTLIGHT_HOME", str(tmp_path))


def commands() -> Commands:
    return Commands.read(ARGV, {})


def sit(notebook: Notebook) -> tuple[Answer, Sitting]:
    given = commands()
    sitting = Ruled(given, Wishes(), notebook, watcher=Silent(), clock=HandClock(), interrupts=Interrupts())
    try:
        return isolate(sitting, given), sitting
    finally:
        notebook.close()


def whole() -> tuple[Answer, Sitting]:
    return sit(begin(HandClock(), "generic", ARGV, commands().space.names, fresh_caches=False))


def killed_at(line: int, way: str) -> None:
    """An isolation that ends at that line."""
    notebook = begin(HandClock(), "generic", ARGV, commands().space.names, fresh_caches=False)
    notebook.close()
    killed_again(notebook, line, way)


def killed_again(notebook: Notebook, line: int, way: str) -> None:
    """Goes on with a notebook, to that line of its own."""
    mortal = Mortal(notebook.folder, tuple(read(notebook.path)))
    mortal.last, mortal.way = line, way
    with pytest.raises(Killed):
        sit(mortal)


@pytest.mark.parametrize("way", WAYS)
def test_killed_at_any_line_it_goes_on_to_the_same_answer(way: str) -> None:
    answer, undisturbed = whole()
    assert set(answer.culprits) == {"--b", "--e"}
    lines = len(list(read(undisturbed.notebook.path))) - 1
    assert lines > 2 * len(undisturbed.trials)
    for line in range(1, lines + 1):
        killed_at(line, way)
        resumed = reopen("last", ARGV, commands().space.names)
        finished = len(resumed.past)
        again, sitting = sit(resumed)
        assert (again.culprits, again.cure) == (answer.culprits, answer.cure)
        assert sitting.launched == len(undisturbed.trials) - finished, "no finished launch is repeated"


@pytest.mark.parametrize("way", WAYS)
def test_killed_twice_what_was_cut_off_is_said_until_it_was_launched_again(way: str) -> None:
    """At every line; and then in the launch that repeats the one that was cut off, or in the next."""
    answer, undisturbed = whole()
    names = commands().space.names
    lines = len(list(read(undisturbed.notebook.path))) - 1
    for line in range(1, lines - 8):
        for second in (2, 3, 5):
            killed_at(line, way)
            let_go = reopen("last", ARGV, names)
            let_go.close()
            killed_again(let_go, second, "before")
            cut_off = settings_cut_off(read(let_go.path))
            resumed = reopen("last", ARGV, names)
            again, sitting = sit(resumed)
            said = [one for one in sitting.watcher.lines if "is launched again" in one]  # type: ignore[attr-defined]
            assert len(said) == len(cut_off)
            assert (again.culprits, again.cure) == (answer.culprits, answer.cure)
            assert sitting.launched == len(undisturbed.trials) - len(resumed.past)


def settings_cut_off(entries: Iterable[Entry]) -> set[tuple[str, ...]]:
    """Those whose last launch did not end."""
    last: dict[tuple[str, ...], int] = {}
    done = set()
    for entry in entries:
        if isinstance(entry, Begun):
            last[entry.setting] = entry.number
        elif isinstance(entry, Ended):
            done.add(entry.trial.number)
    return {setting for setting, number in last.items() if number not in done}


def test_resumed_when_all_is_done_nothing_is_launched() -> None:
    answer, _ = whole()
    again, sitting = sit(reopen("last", ARGV, commands().space.names))
    assert sitting.launched == 0
    assert again.headline == answer.headline
