"""`firstlight isolate`, live: real launches of a program that is guilty by rule, until it says which option it was.

Most of the time is spent waiting for a stall to show, so the cases run side by side from the first test on.
"""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from firstlight.testing.launcher import command
from firstlight.testing.running import Up

pytestmark = pytest.mark.timeout(900)

SIDE_BY_SIDE = 9
WAIT_S = 240.0
POLL_S = 0.1
PORTS = (61000, 61001)
INTERRUPTED = (130, -signal.SIGINT)
"""A shell shows both as 130: a signal that comes while the interpreter is on its way out ends it at once."""
NOT_HERE = ("PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")

TABLE = """
others = true
[[options]]
name = "module"
names = ["-m"]
fixed = "it is what is run"
[[options]]
name = "port"
names = ["--port"]
fixed = "it is where it listens"
[[options]]
name = "c"
names = ["--with-c"]
weaker = "halve"
[[variables]]
variables = ["ON_*"]
"""


@dataclass(frozen=True)
class Answered:
    """What an isolation said, and what was left of it."""

    code: int | None
    said: list[dict[str, Any]]
    stderr: str
    left: tuple[str, ...]
    home: Path

    @property
    def answer(self) -> dict[str, Any]:
        assert self.said, self.stderr
        assert self.said[-1]["type"] in {"answer", "ladder"}, self.stderr
        return self.said[-1]

    @property
    def trials(self) -> list[dict[str, Any]]:
        return [one for one in self.said if one["type"] == "trial"]

    @property
    def culprits(self) -> set[str]:
        return {word.partition("=")[0] for word in self.answer["culprits"]}


def started(
    home: Path,
    words: list[str],
    *program: str | int,
    environ: dict[str, str] | None = None,
    before: Sequence[str] = (),
) -> Up:
    """An isolation of the program, with the table above."""
    tally = home.parent / "tally"
    argv = command("optioned", *(str(word).replace("TALLY", str(tally)) for word in program))
    return isolating_of(argv, home, words, environ, before)


def isolating_of(
    argv: list[str],
    home: Path,
    words: list[str],
    environ: dict[str, str] | None,
    before: Sequence[str] = (),
) -> Up:
    table = home.parent / "options.toml"
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text(TABLE)
    return Up(["--options", str(table), *words, "--", *argv], home, environ, before, subcommand="isolate")


def ended(isolating: Up, home: Path) -> Answered:
    try:
        code: int | None = isolating.process.wait(WAIT_S)
    except subprocess.TimeoutExpired:
        code = None
    left = isolating.left()
    whole = [line for line in isolating.printed().splitlines() if line.strip()]
    isolating.kill()
    return Answered(code, [json.loads(line) for line in whole], isolating.said(), left, home)


def until(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(POLL_S)


def notes(home: Path) -> list[dict[str, Any]]:
    """Every whole line of the notebook."""
    found = []
    for path in (home / "isolations").glob("*/isolation.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def counted(home: Path, kind: str) -> int:
    return sum(note["type"] == kind for note in notes(home))


ON = ("--with-a", "--with-b", "--with-c=8", "--with-d", "--port", 8123)


def case(*program: str | int, words: list[str] | None = None, environ: dict[str, str] | None = None) -> Any:
    def run(home: Path) -> Answered:
        return ended(started(home, words or [], *program, environ=environ), home)

    return run


def killed_and_resumed(home: Path) -> Answered:
    """Killed without a word in its first, its second and its fourth trial, and resumed each time."""
    program = ("guilty=b", *ON)
    for trials in (1, 2, 4):
        isolating = started(home, ["--resume"] if trials > 1 else [], *program)
        until(lambda n=trials: counted(home, "begun") >= n, "the next trial never began")  # type: ignore[misc]
        isolating.signal(signal.SIGKILL)
        isolating.process.wait(10)
        assert isolating.gone(20), isolating.left()
        isolating.kill()
    with next((home / "isolations").glob("*/isolation.jsonl")).open("ab") as notebook:
        notebook.write(b'{"type":"ended","at":1')
    return ended(started(home, ["--resume"], *program), home)


def interrupted(times: int) -> Any:
    def run(home: Path) -> Answered:
        isolating = started(home, [], "deaf", "guilty=b", *ON)
        until(lambda: counted(home, "begun") >= 1 and bool(isolating.left()), "no trial began")
        for _ in range(times):
            isolating.signal(signal.SIGINT)
            time.sleep(0.5)
        return ended(isolating, home)

    return run


def used_up_and_resumed(home: Path) -> Answered:
    first = ended(started(home, ["--max-trials", "2"], "guilty=a", *ON), home)
    assert first.code == 5, first.stderr
    assert "--resume" in first.stderr
    return ended(started(home, ["--resume"], "guilty=a", *ON), home)


def full_shm(home: Path) -> Answered:
    """Every launch finds a full /dev/shm, in a mount namespace of its own."""
    argv = [sys.executable, "-m", "firstlight.testing.faults.shm_full"]
    return ended(isolating_of(argv, home, [], {"ON_x": "1"}), home)


def on_a_taken_port(home: Path) -> Answered:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        return ended(started(home, ["--keep-port"], "guilty=b", "--with-b", "--port", port), home)


def without_a_free_port(home: Path) -> Answered:
    """In a network of its own, whose only ports for whoever asks for any are taken."""
    narrow = f'echo {" ".join(map(str, PORTS))} > /proc/sys/net/ipv4/ip_local_port_range && exec "$0" "$@"'
    taking = (
        f"import os, socket, sys\nheld = [socket.create_server(('', port)) for port in {PORTS}]\n"
        "for one in held: os.set_inheritable(one.fileno(), True)\nos.execvp(sys.argv[1], sys.argv[1:])"
    )
    before = ["unshare", "--net", "sh", "-c", narrow, sys.executable, "-c", taking]
    return ended(started(home, [], "guilty=b", "--with-b", "--port", 8123, before=before), home)


CASES: dict[str, Callable[[Path], Answered]] = {
    "now_and_then": case("guilty=a", "in-one-of=2", "tally=TALLY", "--with-a", "--with-b", "--port", 8123),
    "killed": killed_and_resumed,
    "single": case("guilty=b", *ON),
    "pair": case("guilty=a,d", *ON),
    "variable": case("guilty=x", *ON, environ={"ON_x": "1"}),
    "value": case("guilty=c>=4", *ON),
    "no_option": case("guilty=", *ON),
    "no_baseline": case("guilty=a", "wants=a", "--with-a", "--with-b", "--port", 8123),
    "breaks": case("breaks=", *ON),
    "option_breaks": case("breaks=b", *ON),
    "refuses": case("refuses=", *ON),
    "comes_up": case("guilty=z", *ON),
    "used_up": used_up_and_resumed,
    "interrupted": interrupted(1),
    "interrupted_twice": interrupted(2),
    "too_short": case("starts-in=60", *ON, words=["--deadline", "2"]),
    "ladder": case("guilty=a", *ON, words=["--ladder"]),
    "full_shm": full_shm,
    "taken_port": on_a_taken_port,
    "no_free_port": without_a_free_port,
    "cold": case("guilty=a", "--with-a", "--port", 8123, words=["--fresh-caches"]),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Every case that a collected test asks for, side by side."""
    folder = tmp_path_factory.mktemp("isolate")
    wanted = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for variable in NOT_HERE:
            patch.delenv(variable, raising=False)
        futures: dict[str, Future[Answered]] = {}
        for name, run in CASES.items():
            if name in wanted:
                (folder / name).mkdir()
                futures[name] = pool.submit(run, folder / name / "home")
        yield futures
        for future in futures.values():
            future.cancel()


@pytest.fixture
def answered(runs: dict[str, Future[Answered]], name: str) -> Answered:
    result = runs[name].result(WAIT_S)
    assert result.left == (), result.stderr
    return result


def of(*names: str) -> pytest.MarkDecorator:
    assert set(names) <= set(CASES)
    return pytest.mark.parametrize("name", names)


@of("single")
def test_a_single_culprit(answered: Answered) -> None:
    assert answered.code == 0, answered.stderr
    assert answered.culprits == {"--with-b"}
    assert answered.answer["minimal"]
    assert [change["name"] for change in answered.answer["cure"]] == ["with-b"]
    assert answered.answer["facts"][0]["id"] == "file_lock_held", "the host fact behind it"
    assert "--with-a" in answered.answer["harmless"]


@of("single")
def test_only_the_first_stall_is_waited_for(answered: Answered) -> None:
    first, *later = [trial for trial in answered.trials if trial["outcome"] == "same stall"]
    assert later
    assert all(trial["seconds"] < first["seconds"] for trial in later), "known again at once"


@of("single")
def test_each_trial_has_a_port_and_a_run_of_its_own(answered: Answered) -> None:
    reports = [json.loads(Path(trial["report"]).read_text()) for trial in answered.trials]
    assert len({report["url"] for report in reports}) == len(reports)
    assert len({trial["run"] for trial in answered.trials}) == len(reports)
    assert not any(report["url"].endswith(":8123") for report in reports)


@of("pair")
def test_two_that_stall_only_together(answered: Answered) -> None:
    assert answered.code == 0, answered.stderr
    assert answered.culprits == {"--with-a", "--with-d"}
    assert answered.answer["minimal"]
    assert len(answered.answer["cure"]) == 1, "one of them off is enough"


@of("variable")
def test_a_variable_of_the_environment(answered: Answered) -> None:
    assert answered.code == 0, answered.stderr
    assert answered.answer["culprits"] == ["ON_x=1"]


@of("value")
def test_a_value_is_weakened_no_more_than_needed(answered: Answered) -> None:
    assert answered.code == 0, answered.stderr
    assert answered.culprits == {"--with-c"}
    assert answered.answer["cure"][0]["instead"] == "--with-c=2", "4 stalls still, 2 does not"
    assert "--with-c=2" in answered.answer["cured"]


@of("no_option")
def test_a_stall_that_no_option_cures_names_the_fact_behind_it(answered: Answered) -> None:
    assert answered.code == 1, answered.stderr
    assert answered.answer["end"] == "not an option"
    assert "engine.lock" in answered.answer["headline"]


@of("now_and_then")
def test_a_culprit_that_shows_only_in_some_runs(answered: Answered) -> None:
    assert answered.code == 0, answered.stderr
    assert answered.culprits == {"--with-a"}
    rate = answered.answer["rate"]
    assert 0 < rate["stalls"] < rate["trials"]
    assert answered.answer["missed"] <= 0.05


@of("no_baseline")
def test_a_command_that_never_comes_up_is_not_called_minimal(answered: Answered) -> None:
    assert answered.code == 0, answered.stderr
    assert answered.answer["end"] == "no baseline"
    assert not answered.answer["minimal"]


@of("refuses")
def test_a_command_that_is_refused_is_not_searched(answered: Answered) -> None:
    assert answered.code == 3, answered.stderr
    assert len(answered.trials) == 1
    assert answered.answer["end"] == "other failure"


@of("breaks")
def test_a_start_that_fails_whatever_is_off_is_not_an_option(answered: Answered) -> None:
    assert answered.code == 1, answered.stderr
    assert len(answered.trials) == 2
    assert answered.answer["end"] == "not an option"
    assert "fails the same" in answered.answer["headline"]


@of("option_breaks")
def test_a_start_that_an_option_makes_fail_is_not_searched_but_said(answered: Answered) -> None:
    assert answered.code == 3, answered.stderr
    assert len(answered.trials) == 2
    assert "with everything switched off it comes up" in answered.answer["headline"]


@of("comes_up")
def test_a_command_that_comes_up_has_nothing_to_isolate(answered: Answered) -> None:
    assert answered.code == 0, answered.stderr
    assert answered.answer["end"] == "no stall"
    assert {trial["outcome"] for trial in answered.trials} == {"came up"}


@of("too_short")
def test_a_deadline_shorter_than_a_launch_is_said(answered: Answered) -> None:
    assert answered.code == 5
    assert "--deadline" in answered.stderr
    assert answered.said[-1]["type"] == "broken_off"
    assert "--deadline" in answered.said[-1]["way_out"]


@of("full_shm")
def test_a_full_shm_is_not_an_option(answered: Answered) -> None:
    assert answered.code == 1, answered.stderr
    assert answered.answer["end"] == "not an option"
    assert answered.answer["facts"][0]["id"] == "shm_too_small"
    assert len(answered.trials) == 2


@of("taken_port")
def test_a_port_that_is_kept_and_taken_is_said_before_a_launch(answered: Answered) -> None:
    assert answered.code == 2
    assert "already taken" in answered.said[-1]["what"]
    assert "--keep-port" in answered.said[-1]["way_out"]
    assert not answered.trials


@of("no_free_port")
def test_without_a_free_port_the_way_out_is_to_keep_the_commands_own(answered: Answered) -> None:
    assert answered.code == 4
    assert "no free port" in answered.said[-1]["what"]
    assert "--keep-port" in answered.said[-1]["way_out"]
    assert not answered.trials


@of("killed")
def test_killed_anywhere_it_goes_on_and_repeats_no_finished_launch(answered: Answered) -> None:
    assert answered.code == 0, answered.stderr
    assert answered.culprits == {"--with-b"}
    begun = [note["number"] for note in notes(answered.home) if note["type"] == "begun"]
    done = [note["trial"]["number"] for note in notes(answered.home) if note["type"] == "ended"]
    assert len(set(begun)) == len(begun), "every launch has a number of its own"
    assert len(begun) - len(done) == 3, "three were cut off"
    settings = [(tuple(one["setting"]), one["why"]) for one in answered.trials]
    assert len(set(settings)) == len(settings), "none was launched twice"
    assert any("cut off" in note for note in answered.answer["notes"])


@of("used_up")
def test_after_its_budget_it_can_be_resumed(answered: Answered) -> None:
    assert answered.code == 0, answered.stderr
    assert answered.culprits == {"--with-a"}
    assert "noted before" in answered.stderr


@of("interrupted", "interrupted_twice")
def test_an_interrupt_ends_the_trial_and_says_how_to_go_on(answered: Answered) -> None:
    assert answered.code in INTERRUPTED
    assert counted(answered.home, "begun") == 1
    assert counted(answered.home, "ended") == 0


@of("ladder")
def test_the_ladder_is_a_table_of_outcomes(answered: Answered) -> None:
    assert answered.code == 1, answered.stderr
    rows = answered.answer["rows"]
    assert rows[0]["outcome"] == "same stall"
    assert [row["rung"] for row in rows if not row["outcome"]], "what this server has not is said"


@of("cold")
def test_trials_with_caches_of_their_own_are_called_cold(answered: Answered) -> None:
    assert answered.code == 0, answered.stderr
    assert {trial["caches"] for trial in answered.trials} == {"cold"}
