"""Killed at every line of the notebook, before it, in the midst of it and after it: it goes on to the same answer."""

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
from firstlight.isolate.notebook import Begun, Entry, Notebook, begin, read, reopen
from firstlight.isolate.sitting import Sitting, Wishes
from firstlight.isolate.trial import Trial

ARGV = ("./serve", "--a", "--b", "--c", "--d", "--e")
GUILTY = {"b", "e"}
STALL = Signature(digest="aaaa", phase="weights", waits=())
WAYS = ("before", "torn", "after")


class Killed(BaseException):
    """As if by SIGKILL: nobody handles it."""


class Silent:
    """Watches, and says nothing."""

    def event(self, event: Any) -> None: ...
    def tick(self, view: Any) -> None: ...
    def begun(self, begun: Any, so_far: str) -> None: ...
    def ended(self, trial: Any, *, remembered: bool) -> None: ...
    def said(self, what: str) -> None: ...


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
    mortal = Mortal(notebook.folder)
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


def test_resumed_when_all_is_done_nothing_is_launched() -> None:
    answer, _ = whole()
    again, sitting = sit(reopen("last", ARGV, commands().space.names))
    assert sitting.launched == 0
    assert again.headline == answer.headline
