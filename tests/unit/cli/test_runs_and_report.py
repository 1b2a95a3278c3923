"""`firstlight runs` and `firstlight report` as programs."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from firstlight.cli.runs import HEADING, Row, aligned
from firstlight.cli.runs import standing as in_words
from firstlight.clock import HandClock, SystemClock
from firstlight.core.events import Event
from firstlight.core.record import to_json
from firstlight.core.report import Report
from firstlight.core.state import RunState
from firstlight.core.vocabulary import Motion, Outcome, Phase
from firstlight.isolate.notebook import Concluded, begin, reopen
from firstlight.supervise.runs.folders import RunFolder, new_run
from firstlight.supervise.runs.journal import Journal

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(home: Path) -> RunFolder:
    return new_run(HandClock(), "vllm")


def standing(outcome: Outcome | None, boottime: float = 0.0, *, supervisor: int = 0, server: int = 0) -> bytes:
    state = RunState(
        run="r",
        supervisor=supervisor,
        server=server,
        url="",
        phase=Phase.WEIGHTS,
        motion=Motion.MOVING,
        why="",
        since=0,
        quiet_s=0,
        progress="",
        serving=False,
        outcome=outcome,
        at=1_700_000_000.0,
        boottime=boottime,
        engine="vllm",
        model="Qwen/Qwen3-8B",
        started=1_700_000_000.0,
        first_token_s=41.5,
    )
    return to_json(state)


def words(state: bytes) -> str:
    return in_words(
        RunFolder("r", Path("/nonexistent")), msgspec.json.decode(state, type=RunState), SystemClock().boottime()
    )


class TestRuns:
    def test_no_runs_is_a_clean_answer(self, cli: Cli) -> None:
        done = cli("runs")
        assert (done.returncode, done.stdout) == (0, "")
        assert "No runs yet" in done.stderr

    def test_each_run_is_a_line(self, cli: Cli, run: RunFolder) -> None:
        run.write("state.json", standing(Outcome.EXITED))
        bare = new_run(HandClock(wall=1_700_000_100.0), "sglang")
        heading, newest, older = cli("runs").stdout.splitlines()
        assert heading.split()[:3] == ["RUN", "ENGINE", "MODEL"]
        assert newest.split()[:3] == [bare.id, "sglang", "unknown"]
        assert older.split()[:7] == [run.id, "vllm", "Qwen/Qwen3-8B", "exited", "weights", "42", "s"]

    def test_a_run_whose_watcher_is_gone_is_not_called_moving(self, cli: Cli, run: RunFolder) -> None:
        run.write("state.json", standing(None))
        assert "not watched" in cli("runs").stdout

    def test_as_json_each_run_is_an_object(self, cli: Cli, run: RunFolder) -> None:
        run.write("state.json", standing(Outcome.SERVING))
        new_run(HandClock(wall=1_700_000_100.0), "sglang")
        bare, full = map(json.loads, cli("runs", "--json").stdout.splitlines())
        assert bare["gap"]["reason"] == "vanished"
        assert (full["run"], full["standing"], full["first_token_s"]) == (run.id, "served, ended", 41.5)
        assert full["folder"] == str(run.path)

    def test_each_isolation_is_a_line_below_the_runs(self, cli: Cli, run: RunFolder) -> None:
        run.write("state.json", standing(Outcome.STALLED))
        notebook = begin(SystemClock(), "vllm", ["vllm", "serve", "m"], ["tp"], fresh_caches=False)
        assert "going on" in cli("runs").stdout
        notebook.close()
        assert "firstlight isolate --resume" in cli("runs").stdout
        notebook = reopen("last", ["vllm", "serve", "m"], ["tp"])
        notebook.write(Concluded(at=1.0, headline="-tp 8 stalls it"))
        notebook.close()
        *_, empty, heading, line = cli("runs").stdout.splitlines()
        assert (empty, heading.split()[0]) == ("", "ISOLATION")
        assert line.startswith(notebook.folder.id)
        assert line.endswith("-tp 8 stalls it")
        _, told = map(json.loads, cli("runs", "--json").stdout.splitlines())
        assert (told["isolation"], told["trials"], told["answer"]) == (notebook.folder.id, 0, "-tp 8 stalls it")

    @pytest.mark.parametrize("outcome", Outcome)
    def test_a_run_that_is_over_does_not_read_like_one_that_lives(self, outcome: Outcome) -> None:
        lives = {"serving", "not watched", "unknown", *Motion}
        over = words(standing(outcome))
        assert over not in lives
        assert "_" not in over

    def test_every_way_to_end_has_words_of_its_own(self) -> None:
        assert len({words(standing(outcome)) for outcome in Outcome}) == len(Outcome)

    def test_while_its_firstlight_still_ends_it_a_run_is_ending(self) -> None:
        now = SystemClock().boottime()
        assert words(standing(Outcome.STALLED, now, supervisor=os.getpid())) == "stalled, ending"

    def test_a_server_that_was_kept_is_left_running(self) -> None:
        now = SystemClock().boottime()
        assert words(standing(Outcome.SERVING, now, server=os.getpid())) == "served, left running"
        assert words(standing(Outcome.SERVING, 1.0, server=os.getpid())) == "served, ended"

    def test_a_run_that_was_refused_has_no_state_but_its_report_tells(
        self, cli: Cli, run: RunFolder, report: Report
    ) -> None:
        run.write("report.json", to_json(msgspec.structs.replace(report, outcome=Outcome.NOT_STARTED)))
        assert "not started" in cli("runs").stdout
        run.write("state.json", standing(None))
        assert "not started" in cli("runs").stdout
        assert json.loads(cli("runs", "--json").stdout)["standing"] == "not started"

    @pytest.mark.parametrize("columns", [80, 60, 46])
    def test_a_table_is_never_wider_than_the_terminal(self, columns: int) -> None:
        row = Row(
            "2026-11-29-150312-sglang-a3f", "sglang", "m" * 40, "served, ended", "serving", "12 s", "3 h 07 min"
        )
        lines = aligned([HEADING, row], columns)
        assert max(map(len, lines)) <= columns
        assert all("served, ended" in line for line in lines[1:])

    def test_what_is_not_a_terminal_gets_every_column(self) -> None:
        assert "m" * 400 in aligned([HEADING, HEADING._replace(model="m" * 400)])[1]

    def test_only_as_many_as_asked_for(self, cli: Cli, run: RunFolder) -> None:
        new_run(HandClock(wall=1_700_000_100.0))
        assert len(cli("runs", "-n", "1").stdout.splitlines()) == 2

    def test_a_reader_that_leaves_early_causes_no_noise(self, cli: Cli, run: RunFolder) -> None:
        done = cli("runs", shell="| head -1")
        assert done.stdout.startswith("RUN ")
        assert done.stderr == ""


class TestReport:
    @pytest.fixture(autouse=True)
    def _verdict(self, run: RunFolder, report: Report) -> None:
        run.write("report.json", to_json(report))

    def test_the_last_one_on_the_terminal(self, cli: Cli, report: Report) -> None:
        done = cli("report")
        assert done.returncode == 0
        assert done.stdout.startswith(f"STALLED  {report.headline}\n")
        assert "\x1b" not in done.stdout

    def test_a_terminal_without_unicode_gets_what_it_can_show(self, cli: Cli) -> None:
        done = cli("report", PYTHONIOENCODING="latin-1")
        assert done.returncode == 0, done.stderr
        assert "????????  did not end" in done.stdout

    @pytest.mark.parametrize(
        ("form", "begins"), [("markdown", "### Stalled: "), ("html", "<!doctype html>"), ("json", '{"version":1')]
    )
    def test_every_form(self, cli: Cli, form: str, begins: str) -> None:
        assert cli("report", "last", "--format", form).stdout.startswith(begins)

    @pytest.mark.parametrize(
        ("name", "begins"), [("a.md", "### "), ("a.html", "<!doctype"), ("a.json", "{"), ("a", "STA")]
    )
    def test_a_file_gets_the_form_of_its_suffix(self, cli: Cli, tmp_path: Path, name: str, begins: str) -> None:
        done = cli("report", "-o", str(tmp_path / name))
        assert (done.returncode, done.stdout) == (0, "")
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)

    def test_a_file_that_cannot_be_written_says_so(self, cli: Cli, tmp_path: Path) -> None:
        done = cli("report", "-o", str(tmp_path / "no" / "such.md"))
        assert done.returncode == 2
        assert done.stderr.startswith("firstlight: the report could not be written")

    def test_a_run_without_a_report_is_told_from_its_journal(
        self, cli: Cli, run: RunFolder, stream: list[Event]
    ) -> None:
        run.report.write_bytes(b'{"version":1,"run":"torn by a full di')
        book = Journal(run)
        for event in stream[:-1]:
            book.write(event)
        told = json.loads(cli("report", "--json").stdout)
        assert told["outcome"] == "stalled"
        assert told["gaps"][-1]["what"] == "the end of the run"
        assert told["command"] == ["vllm", "--api-key", "***"]

    def test_a_run_of_which_nothing_can_be_read_says_so(self, cli: Cli, run: RunFolder) -> None:
        run.report.unlink()
        done = cli("report")
        assert done.returncode == 4
        assert done.stderr.startswith(f"firstlight: nothing can be read of {run.id}")

    def test_the_last_is_the_newest_that_can_be_read(self, cli: Cli, run: RunFolder, report: Report) -> None:
        broken = new_run(HandClock(wall=1_700_000_100.0), "sglang")
        done = cli("report")
        assert done.stdout.startswith(f"STALLED  {report.headline}\n")
        assert f"nothing can be read of {broken.id}, the newest run; this is {report.run}" in done.stderr
        assert cli("report", broken.id).returncode == 4
