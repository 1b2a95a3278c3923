"""The probe: every question in every state, and states that cannot be trusted."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from firstlight.cli.probe import _state_of, judge
from firstlight.clock import SystemClock
from firstlight.core.gap import Gap
from firstlight.core.record import to_json
from firstlight.core.state import STATE_STALE_S, RunState
from firstlight.core.vocabulary import GapReason, Motion, Outcome, Phase
from firstlight.core.words import OUTCOME_WORDS
from firstlight.supervise.runs.folders import RunFolder, new_run
from firstlight.supervise.runs.pids import pid_space

Cli = Callable[..., subprocess.CompletedProcess[str]]
NOW = 5000.0
QUESTIONS = ("startup", "live", "ready")


def state(**changes: object) -> RunState:
    starting = RunState(
        run="r",
        supervisor=os.getpid(),
        server=2,
        url="http://127.0.0.1:8000",
        phase=Phase.WEIGHTS,
        motion=Motion.MOVING,
        why="reads 12 MB/s",
        since=1_700_000_000.0,
        quiet_s=0.0,
        progress="12/64 shards",
        serving=False,
        outcome=None,
        at=1_700_000_000.0,
        boottime=NOW - 1,
    )
    return msgspec.structs.replace(starting, **changes)


SERVING = {"phase": Phase.SERVING, "serving": True, "progress": ""}
STALLED = {"motion": Motion.STALLED, "why": "nothing moves", "quiet_s": 82.0}
TABLE = [
    ({}, (0, 0, 1)),
    ({"motion": Motion.SLOW}, (0, 0, 1)),
    ({"motion": Motion.QUIET, "quiet_s": 9.0}, (0, 0, 1)),
    (SERVING, (0, 0, 0)),
    ({**SERVING, "motion": Motion.QUIET}, (0, 0, 0)),
    (STALLED, (1, 1, 1)),
    ({**SERVING, **STALLED}, (1, 1, 1)),
    ({"outcome": Outcome.EXITED}, (3, 3, 3)),
    ({"outcome": Outcome.EXITED, "boottime": NOW - 3600}, (3, 3, 3)),
    ({**SERVING, "boottime": NOW - STATE_STALE_S - 1}, (4, 4, 4)),
    ({**SERVING, "boottime": NOW + 60}, (4, 4, 4)),
    ({**SERVING, "outcome": Outcome.SERVING}, (4, 4, 4)),
    ({"outcome": Outcome.INTERRUPTED}, (4, 4, 4)),
]


@pytest.mark.parametrize(("changes", "codes"), TABLE, ids=[str(number) for number in range(len(TABLE))])
def test_every_question_in_every_state(changes: dict[str, object], codes: tuple[int, int, int]) -> None:
    answers = [judge(question, state(**changes), NOW) for question in QUESTIONS]
    assert tuple(answer.code for answer in answers) == codes
    assert all(answer.text for answer in answers)


def test_the_document_promises_the_same() -> None:
    text = (Path(__file__).parents[3] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and line.endswith(" |")][1:]
    promised = [tuple(int(cell) for cell in row.strip("| ").split("|")[1:]) for row in rows]
    assert promised == [(0, 0, 1), (0, 0, 0), (1, 1, 1), (3, 3, 3), (4, 4, 4)]


def test_a_stall_says_since_when_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    text = judge("live", state(**STALLED), NOW).text
    assert text.startswith("stalled since ")
    assert text.endswith("(83 s) in weights: nothing moves")


def test_ready_says_how_far_it_is() -> None:
    assert judge("ready", state(), NOW).text == "moving in weights, 12/64 shards"


def test_no_state_is_not_a_guess() -> None:
    answer = judge("live", Gap(what="state of the run", reason=GapReason.VANISHED, detail="gone"), NOW)
    assert answer == (4, "state of the run: gone")


def test_the_words_for_every_end_are_those_of_the_report() -> None:
    for outcome in Outcome:
        text = judge("live", state(outcome=outcome, boottime=1.0), NOW).text
        assert OUTCOME_WORDS[outcome] in text
        assert "_" not in text


@pytest.fixture
def run(home: Path) -> RunFolder:
    return new_run(SystemClock(), "vllm")


def write(run: RunFolder, **changes: object) -> None:
    run.write("state.json", to_json(state(run=run.id, boottime=SystemClock().boottime(), **changes)))


class Waits(SystemClock):
    """A clock that is asked while a watcher writes."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run

    def boottime(self) -> float:
        at = super().boottime()
        write(self._run, **SERVING)
        return at


def test_a_state_that_is_written_while_it_is_asked_for_is_not_from_the_future(run: RunFolder) -> None:
    write(run, **SERVING)
    found = _state_of(None, Waits(run))
    assert found.watched
    assert judge("live", found.state, found.boottime) == (0, "serving at http://127.0.0.1:8000")


class TestProgram:
    def test_it_answers_for_the_newest_run_that_is_watched(self, cli: Cli, run: RunFolder) -> None:
        write(run, **SERVING)
        new_run(SystemClock(), "vllm").write("state.json", to_json(state(boottime=1.0)))
        done = cli("probe", "--ready")
        assert (done.returncode, done.stdout) == (0, f"serving at http://127.0.0.1:8000 (run {run.id})\n")

    def test_a_state_of_another_container_is_not_taken_for_one_of_this(self, cli: Cli, run: RunFolder) -> None:
        write(run, **SERVING, pid_space=pid_space())
        assert pid_space(), "what keeps containers apart can be seen"
        write(new_run(SystemClock(), "vllm"), **STALLED, pid_space="another boot pid:[1]")
        done = cli("probe", "--live")
        assert (done.returncode, done.stdout) == (0, f"serving at http://127.0.0.1:8000 (run {run.id})\n")

    def test_a_run_of_this_boot_is_spoken_of_before_one_of_another(self, cli: Cli, run: RunFolder) -> None:
        write(run, outcome=Outcome.EXITED)
        later = SystemClock().boottime() + 10_000
        new_run(SystemClock(), "vllm").write("state.json", to_json(state(run="foreign", boottime=later)))
        done = cli("probe", "--live")
        assert done.returncode == 3
        assert f"(run {run.id})" in done.stdout

    def test_a_run_can_be_named(self, cli: Cli, run: RunFolder) -> None:
        write(run, **STALLED)
        assert cli("probe", "--live", run.id).returncode == 1
        assert cli("probe", "--live", "nonsense").returncode == 4

    def test_no_run_is_4(self, cli: Cli) -> None:
        done = cli("probe", "--startup")
        assert done.returncode == 4
        assert "no run is being watched here" in done.stdout

    def test_a_run_without_a_state_is_4(self, cli: Cli, run: RunFolder) -> None:
        assert cli("probe", "--startup").returncode == 4

    def test_a_torn_state_is_4(self, cli: Cli, run: RunFolder) -> None:
        run.state.write_bytes(to_json(state())[:100])
        assert cli("probe", "--live").returncode == 4

    def test_a_stale_state_is_4_and_says_whose(self, cli: Cli, run: RunFolder) -> None:
        run.write("state.json", to_json(state(boottime=SystemClock().boottime() - 60)))
        done = cli("probe", "--live")
        assert done.returncode == 4
        assert f"not watched: firstlight (pid {os.getpid()}) is gone or hangs" in done.stdout

    def test_a_state_whose_writer_has_just_gone_is_4_at_once(self, cli: Cli, run: RunFolder) -> None:
        gone = subprocess.Popen(["/bin/true"])
        gone.wait(10)
        write(run, **SERVING, supervisor=gone.pid)
        done = cli("probe", "--live")
        assert done.returncode == 4
        assert f"not watched: firstlight (pid {gone.pid}) is gone" in done.stdout

    def test_where_several_runs_are_watched_it_says_whose_answer_this_is(self, cli: Cli, run: RunFolder) -> None:
        write(run, **SERVING)
        assert run.id not in cli("probe", "--live").stdout
        newer = new_run(SystemClock(), "vllm")
        write(newer, **SERVING)
        assert f"(run {newer.id}, the newest of 2 that are watched)" in cli("probe", "--live").stdout

    def test_json_has_the_answer_and_the_state(self, cli: Cli, run: RunFolder) -> None:
        write(run)
        done = cli("probe", "--ready", "--json")
        answer = json.loads(done.stdout)
        assert done.returncode == answer["exit_code"] == 1
        assert (answer["question"], answer["ok"], answer["state"]["phase"]) == ("ready", False, "weights")

    def test_it_loads_nothing_that_it_does_not_need(self, cli: Cli, run: RunFolder) -> None:
        write(run)
        done = cli("probe", "--live", PYTHONPROFILEIMPORTTIME="1")
        loaded = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time")}
        assert "firstlight.supervise.runs.folders" in loaded
        assert not loaded & {"rich", "sqlite3", "firstlight.core.events", "firstlight.core.bundle", "http.client"}
