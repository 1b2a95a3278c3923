"""The history remembers good starts, and never stands in the way of one."""

import os
import sqlite3
from pathlib import Path

import pytest

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason, Phase
from firstlight.supervise.liveness.history import QUIET_ALLOWED_MAX_S, History, Need, machine_id, major_minor

PATIENT_S = 20.0
WEIGHTS = {Phase.WEIGHTS: Need(quiet_s=10.0, duration_s=60.0)}


def history(path: Path, machine: str = "here", patience_s: float = PATIENT_S) -> History:
    return History(path / "state" / "history.sqlite", machine, patience_s=patience_s)


def test_nothing_is_known_at_first_and_no_file_is_made_by_asking(tmp_path: Path) -> None:
    assert history(tmp_path).needs("vllm", "0.32.0") == {}
    assert not list(tmp_path.iterdir())


def test_the_most_that_good_starts_needed_is_kept(tmp_path: Path) -> None:
    known = history(tmp_path)
    assert known.learn("vllm", "0.32.0+cpu", WEIGHTS, at=1.0) is None
    assert known.learn("vllm", "0.32.1", {Phase.WEIGHTS: Need(quiet_s=4.0, duration_s=90.0)}, at=2.0) is None
    assert known.needs("vllm", "0.32.7") == {Phase.WEIGHTS: Need(quiet_s=10.0, duration_s=90.0)}
    (row,) = rows(known)
    assert (row.good_starts, row.at, row.engine_version) == (2, 2.0, "0.32")


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        history(tmp_path).learn("vllm", "0.32.0", WEIGHTS, at=1.0)
    finally:
        os.umask(before)
    folder = tmp_path / "state"
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "history.sqlite")] == [0o700, 0o600]


def rows(known: History) -> tuple:  # type: ignore[type-arg]
    found = known.rows()
    assert not isinstance(found, Gap)
    return found


def test_another_engine_version_or_machine_learns_for_itself(tmp_path: Path) -> None:
    history(tmp_path).learn("vllm", "0.32.0", WEIGHTS, at=1.0)
    assert history(tmp_path).needs("vllm", "0.33.0") == {}
    assert history(tmp_path).needs("sglang", "0.32.0") == {}
    assert history(tmp_path, "there").needs("vllm", "0.32.0") == {}
    assert len(rows(history(tmp_path, "there"))) == 1


def test_the_silence_that_is_allowed_is_half_again_what_was_needed_and_bounded() -> None:
    assert Need(quiet_s=10.0, duration_s=0).quiet_allowed_s == 17.0
    assert Need(quiet_s=9000.0, duration_s=0).quiet_allowed_s == QUIET_ALLOWED_MAX_S


def test_a_damaged_file_is_a_gap_and_is_put_aside_when_something_is_learnt(tmp_path: Path) -> None:
    known = history(tmp_path)
    file = tmp_path / "state" / "history.sqlite"
    file.parent.mkdir()
    file.write_bytes(b"this is no database, and long enough to be read as one" * 100)
    assert isinstance(known.needs("vllm", "0.32"), Gap)
    assert known.learn("vllm", "0.32", WEIGHTS, at=1.0) is None
    assert known.needs("vllm", "0.32") == WEIGHTS
    assert file.with_suffix(".damaged").exists()


def test_a_locked_file_is_a_gap(tmp_path: Path) -> None:
    known = history(tmp_path)
    known.learn("vllm", "0.32", WEIGHTS, at=1.0)
    other = sqlite3.connect(tmp_path / "state" / "history.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    hurried = history(tmp_path, patience_s=0.1)
    for answer in (hurried.needs("vllm", "0.32"), hurried.learn("vllm", "0.32", WEIGHTS, at=2.0)):
        assert isinstance(answer, Gap)
        assert answer.reason in {GapReason.FAILED, GapReason.TIMED_OUT}
    other.execute("ROLLBACK")
    other.close()
    assert known.needs("vllm", "0.32") == WEIGHTS


def test_a_folder_that_cannot_be_made_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    gap = history(tmp_path).learn("vllm", "0.32", WEIGHTS, at=1.0)
    assert isinstance(gap, Gap)
    assert "the shipped defaults hold" in gap.detail


def test_a_file_system_that_is_full_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "history.sqlite").symlink_to("/dev/full")
    assert isinstance(history(tmp_path).learn("vllm", "0.32", WEIGHTS, at=1.0), Gap)


def test_what_never_answers_is_abandoned(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    pipe = tmp_path / "state" / "history.sqlite"
    os.mkfifo(pipe)
    gap = history(tmp_path, patience_s=0.1).needs("vllm", "0.32")
    assert isinstance(gap, Gap)
    os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))  # lets the abandoned thread go


def test_a_history_of_a_newer_firstlight_is_left_alone(tmp_path: Path) -> None:
    known = history(tmp_path)
    known.learn("vllm", "0.32", WEIGHTS, at=1.0)
    with sqlite3.connect(tmp_path / "state" / "history.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    assert isinstance(known.needs("vllm", "0.32"), Gap)
    assert isinstance(known.learn("vllm", "0.32", WEIGHTS, at=2.0), Gap)


@pytest.mark.parametrize(
    "broken", ["quiet_max_s = 9e999", "quiet_max_s = -1", "duration_max_s = 'long'", "phase = 'a phase of tomorrow'"]
)
def test_rows_that_make_no_sense_are_not_believed(tmp_path: Path, broken: str) -> None:
    known = history(tmp_path)
    known.learn("vllm", "0.32", WEIGHTS, at=1.0)
    database = sqlite3.connect(tmp_path / "state" / "history.sqlite")
    database.execute(f"UPDATE learnt SET {broken}")
    database.commit()
    database.close()
    assert known.needs("vllm", "0.32") == {}


@pytest.mark.parametrize(
    ("version", "known_as"), [("0.32.0+cpu", "0.32"), ("0.5.23rc1", "0.5"), ("1", "1"), ("", "")]
)
def test_versions_are_known_by_major_and_minor(version: str, known_as: str) -> None:
    assert major_minor(version) == known_as


def test_a_machine_is_another_one_with_other_gpus() -> None:
    assert machine_id(["H200", "H200"]) == machine_id(["H200", "H200"])
    assert machine_id(["H200"]) != machine_id(["H100"])
