"""The notebook: torn, resumed, mistaken for another."""

from pathlib import Path

import pytest

from firstlight.clock import SystemClock
from firstlight.errors import RunNotFound, UsageError
from firstlight.isolate.notebook import NAME, Begun, Ended, Notebook, Noted, Past, begin, read, reopen
from firstlight.isolate.problem import Outcome
from firstlight.isolate.trial import Trial

ARGV = ("serve", "--api-key", "sk-abcdefghijklmnopqrstuv", "--fast")
SWITCHES = ("fast",)


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTLIGHT_HOME", str(tmp_path))


def opened() -> Notebook:
    return begin(SystemClock(), "generic", ARGV, SWITCHES, fresh_caches=False)


def asked(number: int, *setting: str) -> Begun:
    return Begun(at=1.0, number=number, setting=setting, why="to know")


def trial(number: int, *setting: str, outcome: Outcome = Outcome.UP) -> Trial:
    return Trial(
        number=number, setting=setting, why="to know", outcome=outcome, what="", seconds=1.0, run="r", report="/r"
    )


def test_what_was_written_is_there_again() -> None:
    notebook = opened()
    notebook.write(asked(1, "fast"))
    notebook.write(Ended(at=2.0, trial=trial(1, "fast", outcome=Outcome.SAME)))
    notebook.write(asked(2))
    notebook.write(Noted(at=3.0, what="a note"))
    notebook.close()
    again = reopen("last", ARGV, SWITCHES)
    assert [one.number for one in again.past] == [1]
    assert [one.number for one in again.unfinished] == [2]
    assert again.notes == ("a note",)
    again.close()


def test_secrets_are_not_written() -> None:
    notebook = opened()
    notebook.close()
    assert b"sk-abcdef" not in notebook.path.read_bytes()


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_a_torn_last_line_costs_only_itself(cut: int) -> None:
    notebook = opened()
    notebook.write(asked(1, "fast"))
    notebook.write(Ended(at=2.0, trial=trial(1, "fast")))
    notebook.close()
    notebook.path.write_bytes(notebook.path.read_bytes()[:-cut])
    again = reopen("last", ARGV, SWITCHES)
    assert [one.number for one in again.unfinished or again.past] == [1]
    again.write(asked(2))
    again.close()
    assert read(again.path), "what follows stands on a line of its own"
    assert [one.number for one in read(again.path) if isinstance(one, Begun)] == [1, 2]


def test_garbage_is_passed_over() -> None:
    notebook = opened()
    notebook.close()
    with notebook.path.open("ab") as file:
        file.write(b'\xff\xfe\n{"type":"begun"}\n[1\n{"type":"unheard of"}\n\n')
    again = reopen("last", ARGV, SWITCHES)
    assert again.opened is not None
    again.close()


@pytest.mark.parametrize("argv", [(*ARGV, "--more"), ARGV[:-1], ("serve", "--api-key", "sk-other", "--fast")])
def test_another_command_is_refused(argv: tuple[str, ...]) -> None:
    opened().close()
    with pytest.raises(UsageError, match="another command"):
        reopen("last", argv, SWITCHES)


def test_another_table_is_refused() -> None:
    opened().close()
    with pytest.raises(UsageError, match="slow"):
        reopen("last", ARGV, (*SWITCHES, "slow"))


def test_one_that_goes_on_is_not_resumed() -> None:
    notebook = opened()
    with pytest.raises(UsageError, match="still going on"):
        reopen("last", ARGV, SWITCHES)
    notebook.close()
    reopen("last", ARGV, SWITCHES).close()


def test_a_folder_without_its_first_line_is_refused() -> None:
    notebook = opened()
    notebook.close()
    notebook.path.write_bytes(b"")
    with pytest.raises(UsageError, match="does not say"):
        reopen("last", ARGV, SWITCHES)


def test_there_is_nothing_to_resume() -> None:
    with pytest.raises(RunNotFound, match="no isolation"):
        reopen("last", ARGV, SWITCHES)


def test_no_isolation_of_that_name() -> None:
    opened().close()
    with pytest.raises(RunNotFound, match="nonsense"):
        reopen("nonsense", ARGV, SWITCHES)


def test_a_notebook_that_cannot_be_written_says_so_and_nothing_else(tmp_path: Path) -> None:
    notebook = opened()
    notebook.close()
    notebook.write(asked(1))
    assert NAME in notebook.lost


def test_past_trials_are_handed_out_once_and_in_order() -> None:
    past = Past([trial(1, "a"), trial(2, "a"), trial(3)])
    assert [past.take(asked(9, "a")) for _ in range(3)] == [trial(1, "a"), trial(2, "a"), None]
    assert past.take(asked(9)) == trial(3)


def test_a_weakened_setting_is_another_question() -> None:
    past = Past([trial(1, "a")])
    weakened = Begun(at=1.0, number=2, setting=("a",), levels=(("a", 1),), why="")
    assert past.take(weakened) is None
    assert past.take(asked(2, "a")) == trial(1, "a")


def test_the_latest_is_the_latest_of_this_command() -> None:
    mine = begin(SystemClock(), "generic", ARGV, SWITCHES, fresh_caches=False)
    mine.close()
    begin(SystemClock(), "generic", [*ARGV, "--other"], SWITCHES, fresh_caches=False).close()
    again = reopen("last", ARGV, SWITCHES)
    assert again.folder.id == mine.folder.id
    again.close()
