"""Runs: where they go, what they are called, which are found, and which are removed."""

import os
import stat
from pathlib import Path

import pytest

from firstlight.clock import HandClock
from firstlight.core.gap import Gap
from firstlight.core.record import to_json
from firstlight.core.state import RunState
from firstlight.core.vocabulary import GapReason, Motion, Phase
from firstlight.errors import RunNotFound
from firstlight.supervise.runs import folders as runs
from firstlight.supervise.runs import places
from firstlight.supervise.runs.folders import find_run, list_runs, new_run, prune
from firstlight.supervise.runs.places import Place, home


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home and a temporary directory of the test's own; the machine's real fallbacks are left out."""
    monkeypatch.setenv("FIRSTLIGHT_HOME", str(tmp_path / "home"))
    fallback = tmp_path / "tmp" / f"firstlight-{os.getuid()}" / "runs"
    fallback.parent.parent.mkdir()
    places_of_the_test = lambda among: (Place(home() / "runs", False), Place(fallback, True))  # noqa: E731
    monkeypatch.setattr(runs, "places", places_of_the_test)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def state(run: str, *, server: int = 0) -> RunState:
    return RunState(
        run=run,
        supervisor=0,
        server=server,
        url="",
        phase=Phase.WEIGHTS,
        motion=Motion.MOVING,
        why="",
        since=0,
        quiet_s=0,
        progress="",
        serving=False,
        outcome=None,
        at=0,
        boottime=0,
    )


class TestHome:
    def test_the_users_choice_comes_first(self, tmp_path: Path) -> None:
        assert home() == tmp_path / "home"

    def test_then_the_state_folder_of_the_desktop_standard(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("FIRSTLIGHT_HOME")
        monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
        assert home() == Path("/somewhere/firstlight")

    def test_a_relative_state_folder_is_ignored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("FIRSTLIGHT_HOME")
        monkeypatch.setenv("XDG_STATE_HOME", "somewhere")
        monkeypatch.setenv("HOME", "/home/somebody")
        assert home() == Path("/home/somebody/.local/state/firstlight")


class TestNewRun:
    def test_its_name_tells_when_and_what(self) -> None:
        run = new_run(HandClock(wall=1_700_000_000.5), "vLLM")
        assert runs._RUN_ID.fullmatch(run.id)
        assert run.id.endswith("-vllm-800")

    def test_only_the_owner_may_look_into_it(self) -> None:
        run = new_run(HandClock())
        assert run.gaps == ()
        assert mode(run.path) == 0o700
        assert mode(home()) == 0o700
        assert list(run.path.iterdir()) == []

    def test_runs_of_the_same_instant_step_aside(self) -> None:
        clock = HandClock()
        made = [new_run(clock).id for _ in range(5)]
        assert len(set(made)) == 5
        assert [run.id for run in list_runs()] == sorted(made, reverse=True)

    def test_a_home_that_cannot_be_made_is_a_gap_and_the_run_goes_elsewhere(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("FIRSTLIGHT_HOME", str(tmp_path / "file" / "home"))
        run = new_run(HandClock())
        assert run.path.is_relative_to(tmp_path / "tmp")
        assert mode(run.path.parent.parent) == 0o700
        assert [gap.reason for gap in run.gaps] == [GapReason.FAILED]
        assert "file/home" in run.gaps[0].what
        assert run.gaps[0].detail == "Not a directory"
        assert find_run("last") == runs.RunFolder(run.id, run.path)

    def test_a_disk_that_takes_no_data_is_noticed_before_the_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(path: Path, data: bytes, flags: int = 0, *, sync: bool = False) -> None:
            if path.is_relative_to(tmp_path / "home"):
                with open("/dev/full", "wb", buffering=0) as disk:  # noqa: PTH123
                    disk.write(data)

        monkeypatch.setattr(places, "write_file", full)
        monkeypatch.setattr(Path, "unlink", lambda path: None)
        run = new_run(HandClock())
        assert "No space left" in run.gaps[0].detail
        assert list((tmp_path / "home" / "runs").iterdir()) == []

    def test_a_fallback_that_is_a_strangers_link_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FIRSTLIGHT_HOME", "/dev/null/home")
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        (tmp_path / "tmp" / f"firstlight-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
        run = new_run(HandClock())
        assert not run.path.exists()
        assert len(run.gaps) == 2
        assert list((tmp_path / "elsewhere").iterdir()) == []

    def test_a_fallback_that_others_can_write_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FIRSTLIGHT_HOME", "/dev/null/home")
        (tmp_path / "tmp" / f"firstlight-{os.getuid()}").mkdir()
        (tmp_path / "tmp" / f"firstlight-{os.getuid()}").chmod(0o777)
        assert "somebody else could write" in new_run(HandClock()).gaps[1].detail

    def test_a_run_without_a_folder_still_takes_writes(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("FIRSTLIGHT_HOME", "/dev/null/home")
        (tmp_path / "tmp").rmdir()
        run = new_run(HandClock())
        assert run.write("bundle-1.json", b"{}") == ""
        assert isinstance(run.read_state(), Gap)


class TestFinding:
    def test_rubbish_among_the_runs_is_passed_over(self) -> None:
        run = new_run(HandClock())
        place = home() / "runs"
        (place / "notes.txt").write_text("x")
        (place / "2026-11-29-150312-vllm-a3f").write_text("a file of that name")
        (place / "not a run").mkdir()
        (place / "2026-11-29-150313-vllm-a3f").symlink_to(place / "not a run")
        assert [found.id for found in list_runs()] == [run.id]

    def test_last_is_the_newest(self) -> None:
        clock = HandClock()
        new_run(clock)
        clock.advance(60)
        newest = new_run(clock)
        assert find_run("last").id == newest.id

    def test_part_of_a_name_is_enough_if_it_is_the_only_one(self) -> None:
        clock = HandClock()
        one = new_run(clock, "vllm")
        new_run(clock, "sglang")
        assert find_run("vllm").id == one.id

    def test_a_name_that_fits_several_is_refused_with_their_names(self) -> None:
        clock = HandClock()
        one = new_run(clock, "vllm")
        new_run(clock, "vllm")
        with pytest.raises(RunNotFound, match=one.id):
            find_run("vllm")

    def test_no_such_run_and_no_runs_at_all_say_so(self) -> None:
        with pytest.raises(RunNotFound, match="there are no runs yet"):
            find_run("last")
        new_run(HandClock())
        with pytest.raises(RunNotFound, match=r"there is no run '\.\./\.\./etc'"):
            find_run("../../etc")

    def test_a_folder_from_elsewhere_is_a_run(self, tmp_path: Path) -> None:
        copied = tmp_path / "copied"
        copied.mkdir()
        with pytest.raises(RunNotFound):
            find_run(str(copied))
        (copied / "journal.jsonl").write_text("")
        assert find_run(str(copied)).path == copied


class TestPruning:
    @pytest.fixture
    def old_runs(self) -> list[str]:
        """Fifty-three runs, the oldest first, none of them touched for hours."""
        made = [f"2023-11-14-1200{number:02}-server-000" for number in range(53)]
        for run in made:
            path = home() / "runs" / run
            path.mkdir(parents=True)
            os.utime(path, (1_700_000_000, 1_700_000_000))
        return made

    def test_the_oldest_beyond_fifty_go(self, old_runs: list[str]) -> None:
        removed = prune(home() / "runs", HandClock(wall=1_700_100_000))
        assert sorted(removed) == old_runs[:3]
        assert len(list_runs()) == 50

    def test_a_run_that_was_just_written_to_stays(self, old_runs: list[str]) -> None:
        oldest = home() / "runs" / old_runs[0]
        (oldest / "stdout.log").write_text("still talking")
        os.utime(oldest / "stdout.log", (1_700_099_000, 1_700_099_000))
        os.utime(oldest, (1_700_000_000, 1_700_000_000))
        assert old_runs[0] not in prune(home() / "runs", HandClock(wall=1_700_100_000))

    def test_a_run_whose_server_may_still_be_there_stays(self, old_runs: list[str]) -> None:
        kept = find_run(old_runs[0])
        kept.write("state.json", to_json(state(kept.id, server=os.getpid())))
        for path in (kept.state, kept.path):
            os.utime(path, (1_700_000_000, 1_700_000_000))
        assert old_runs[0] not in prune(home() / "runs", HandClock(wall=1_700_100_000))

    def test_a_clock_that_jumped_back_removes_nothing_that_is_new(self, old_runs: list[str]) -> None:
        assert prune(home() / "runs", HandClock(wall=1_700_000_100)) == ()

    def test_big_runs_go_earlier_but_never_the_newest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runs, "BYTES_KEPT", 1000)
        clock = HandClock()
        made = []
        for _ in range(3):
            clock.advance(60)
            run = new_run(clock)
            run.write("stdout.log", b"x" * 2000)
            for path in (run.path / "stdout.log", run.path):
                os.utime(path, (1_700_000_000, 1_700_000_000))
            made.append(run.id)
        prune(home() / "runs", HandClock(wall=1_700_100_000))
        assert [run.id for run in list_runs()] == made[-1:]
