"""The command line as a program: help, errors, exit codes, pipes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from firstlight import __version__
from firstlight.cli import main
from firstlight.cli.up import ENGINES
from firstlight.engines import table
from firstlight.errors import RunNotFound

Cli = Callable[..., subprocess.CompletedProcess[str]]


def test_help_names_every_command_and_what_exit_codes_mean(cli: Cli) -> None:
    done = cli("--help")
    assert done.returncode == 0
    for name, lazy in main.COMMANDS.items():
        assert f"{name} " in done.stdout
        assert lazy.help in done.stdout
    for code in (0, 1, 2, 3, 4, 5, 70, 130):
        assert re.search(rf"^ +{code} +\w", done.stdout, re.MULTILINE)


def test_help_imports_no_command_and_nothing_heavy() -> None:
    script = (
        "import sys\nfrom firstlight.cli.main import run\nrun(['--help'])\n"
        "print(*sorted(sys.modules), sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    modules = set(done.stderr.split())
    assert "firstlight.cli.main" in modules
    assert not {name for name in modules if name.split(".")[0] in {"torch", "rich", "msgspec", "vllm", "sglang"}}
    assert not {
        name for name in modules if name.startswith("firstlight.") and name.split(".")[1] not in {"cli", "errors"}
    }
    assert not {lazy.place.split(":")[0] for lazy in main.COMMANDS.values()} & modules


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_exists_and_explains_itself(cli: Cli, name: str) -> None:
    done = cli(name, "--help")
    assert done.returncode == 0, done.stderr
    assert name in done.stdout


@pytest.mark.parametrize("name", ["up", "check", "isolate"])
def test_an_option_of_the_server_is_told_its_place(cli: Cli, name: str) -> None:
    done = cli(name, "--tp", "3")
    assert done.returncode == 2
    assert f"firstlight {name} -- firstlight serve MODEL --tp …" in done.stderr


def test_ctrl_c_while_the_command_line_is_read_in_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    argv = [sys.executable, "-m", "firstlight"]
    done = subprocess.run(argv, capture_output=True, env=environment, timeout=60, check=False)
    assert done.returncode == -signal.SIGINT
    assert not done.stderr


def test_version(cli: Cli) -> None:
    assert cli("--version").stdout == f"firstlight {__version__}\n"


@pytest.mark.parametrize("arguments", [("nonsense",), ("runs", "--nonsense"), ("probe",), ("runs", "-n", "none")])
def test_wrong_usage_is_2_and_words_on_stderr(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Error" in done.stderr


OUT_OF_BOUNDS = [
    ("--port", "-1"),
    ("--port", "65536"),
    ("--deadline", "-1"),
    ("--deadline", "nan"),
    ("--deadline", "inf"),
    ("--canary", "nan"),
    ("--canary", "-0.1"),
]


@pytest.mark.parametrize(
    "arguments",
    [
        *(("up", *wrong, "--", "true") for wrong in OUT_OF_BOUNDS),
        *(("attach", *wrong, "1") for wrong in OUT_OF_BOUNDS),
        ("up", "--max-tokens", "0", "--", "true"),
        ("up", "--engine", "foo", "--", "true"),
        ("up", "--once", "--keep", "--", "true"),
    ],
)
def test_what_no_server_could_be_followed_with_is_refused(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert "Error" in done.stderr
    assert not cli("runs").stdout


@pytest.mark.parametrize("target", ["0", "99999999999999999999", ":0", ":65536", ":", "x"])
def test_what_is_neither_a_pid_nor_a_port_is_refused(cli: Cli, target: str) -> None:
    done = cli("attach", target)
    assert done.returncode == 2
    assert done.stderr.startswith("firstlight: ")


def test_the_engines_that_can_be_named_are_those_that_are_known() -> None:
    assert ENGINES == table.ENGINES


def test_up_says_how_a_command_is_given(cli: Cli) -> None:
    assert "[MODEL | -- CMD …]" in cli("up", "--help").stdout.splitlines()[0]


class TestModelFolder:
    """Needs the embedded engine's packages, as `make test` has them."""

    def test_one_without_a_model_in_it_is_refused_before_anything_is_started(self, cli: Cli, tmp_path: Path) -> None:
        done = cli("up", str(tmp_path))
        assert done.returncode == 2
        assert "holds no model, config.json: No such file" in done.stderr
        assert not cli("runs").stdout

    @pytest.mark.parametrize("name", ["none", "file", "file/below", "n" * 5000])
    def test_one_that_is_not_there_is_refused(self, cli: Cli, tmp_path: Path, name: str) -> None:
        (tmp_path / "file").touch()
        done = cli("up", str(tmp_path / name))
        assert done.returncode == 2
        assert "there is no model folder" in done.stderr


class TestRefusedStart:
    def test_a_command_that_does_not_exist_is_2_with_a_verdict(self, cli: Cli) -> None:
        done = cli("up", "--", "no-such-command")
        assert done.returncode == 2
        assert done.stdout.startswith("NOT STARTED  cannot run 'no-such-command'")
        assert cli("report").stdout == done.stdout
        assert "not started" in cli("runs").stdout

    @pytest.mark.parametrize("form", ["terminal", "markdown", "html", "json"])
    def test_its_report_has_every_form(self, cli: Cli, form: str) -> None:
        cli("up", "--", "no-such-command")
        done = cli("report", "--format", form)
        assert done.returncode == 0, done.stderr
        assert "no-such-command" in done.stdout

    def test_a_port_that_is_taken_is_2_with_a_verdict(self, cli: Cli) -> None:
        with socket.create_server(("127.0.0.1", 0)) as holder:
            port = str(holder.getsockname()[1])
            done = cli("up", "--json", "--port", port, "--", "true")
        assert done.returncode == 2
        assert json.loads(done.stdout.splitlines()[-1])["report"]["outcome"] == "not_started"


def test_an_error_of_ours_is_a_sentence_a_way_out_and_its_own_code(cli: Cli) -> None:
    done = cli("report", "nonsense")
    assert done.returncode == RunNotFound.exit_code
    first, second = done.stderr.splitlines()
    assert first == "firstlight: there are no runs yet"
    assert second.startswith("  `firstlight up` makes one")


class TestEndings:
    """What `run` makes of each way in which a command can end."""

    @staticmethod
    def ending(monkeypatch: pytest.MonkeyPatch, raised: BaseException) -> int:
        def callback() -> None:
            raise raised

        command = click.Command("boom", callback=callback)
        monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: command)
        return main.run(["boom"])

    def test_a_bug_says_that_it_is_one_and_leaves_a_file(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        secret = "hf_" + "a1B2" * 8
        monkeypatch.setattr(sys, "argv", ["firstlight", "up", "--api-key", "hush"])
        assert self.ending(monkeypatch, ZeroDivisionError(f"with {secret}")) == 70
        said = capsys.readouterr().err
        assert "this is a bug of firstlight, please report it" in said
        path = said.split()[-1]
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            text = file.read()
            mode = os.fstat(file.fileno()).st_mode & 0o777
        os.unlink(path)  # noqa: PTH108
        assert "ZeroDivisionError" in text
        assert "command: firstlight up --api-key ***" in text
        assert secret not in text
        assert mode == 0o600

    @pytest.mark.parametrize("raised", [KeyboardInterrupt(), click.Abort()])
    def test_an_interrupt_is_130(self, monkeypatch: pytest.MonkeyPatch, raised: BaseException) -> None:
        assert self.ending(monkeypatch, raised) == 130

    def test_a_closed_pipe_is_quiet(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.ending(monkeypatch, BrokenPipeError()) == 141
        assert capsys.readouterr() == ("", "")


def test_a_reader_that_leaves_early_causes_no_noise(cli: Cli) -> None:
    done = cli("--help", shell="| head -1")
    assert done.stdout.startswith("Usage: firstlight")
    assert done.stderr == ""


def test_a_closed_stdout_causes_no_noise(cli: Cli) -> None:
    """The pipe's reader is gone before the first word is written."""
    done = cli("--help", shell="| true")
    assert done.stderr == ""


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_that_were_closed_at_the_start_change_no_exit_code(cli: Cli, closed: str) -> None:
    assert cli("--help", shell=f"{closed}; echo code $?").stdout.endswith("code 0\n")
    done = cli("up", "--once", "--", sys.executable, "-c", "raise SystemExit(7)", shell=f"{closed}; echo code $?")
    assert done.stdout.endswith("code 3\n")
    assert "Traceback" not in done.stderr
