"""`firstlight isolate` and wrong usage: said at once, before anything is launched."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., subprocess.CompletedProcess[str]]

CYCLE = """
[[options]]
name = "a"
names = ["--a"]
needs = ["b"]
[[options]]
name = "b"
names = ["--b"]
needs = ["a"]
"""
UNKNOWN = """
[[options]]
name = "a"
names = ["--a"]
needs = ["nowhere"]
"""


def test_its_help_says_what_happens_and_what_exit_codes_mean(cli: Cli) -> None:
    done = cli("isolate", "--help")
    assert done.returncode == 0
    for word in ("--resume", "--ladder", "--fresh-caches", "Exit codes", "130", "[[options]]"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 118


def test_a_command_is_needed(cli: Cli) -> None:
    done = cli("isolate")
    assert done.returncode == 2
    assert "after --" in done.stderr


@pytest.mark.parametrize(
    ("table", "word"),
    [
        (CYCLE, "need itself"),
        (UNKNOWN, "nowhere"),
        ("options = 3", "table"),
        ("[[[", "TOML"),
        ("[[options]]\nx=1", "x"),
    ],
)
def test_a_wrong_table_is_refused_with_the_entry(cli: Cli, tmp_path: Path, table: str, word: str) -> None:
    path = tmp_path / "table.toml"
    path.write_text(table)
    done = cli("isolate", "--options", str(path), "--", "./serve", "--a", "--b")
    assert done.returncode == 2
    assert word in done.stderr


def test_a_table_that_is_not_there(cli: Cli) -> None:
    done = cli("isolate", "--options", "/nonexistent", "--", "./serve", "--a")
    assert done.returncode == 2


def test_a_command_without_options_has_nothing_to_switch_off(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "firstlight", "isolate", "--", "true"],
        env={"PATH": "/usr/bin:/bin", "FIRSTLIGHT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "could be switched off" in done.stderr


def test_there_is_nothing_to_resume(cli: Cli) -> None:
    done = cli("isolate", "--resume", "--", "./serve", "--a")
    assert done.returncode == 2
    assert "no isolation" in done.stderr


def test_a_program_that_does_not_exist(cli: Cli) -> None:
    done = cli("isolate", "--", "/nonexistent/serve", "--fast")
    assert done.returncode == 3
    assert "nonexistent" in done.stdout


def test_secrets_are_shown_nowhere(cli: Cli) -> None:
    secret = "sk-abcdefghijklmnopqrstuvwx"
    done = cli("isolate", "--json", "--", sys.executable, "-c", "raise SystemExit(3)", "--fast", "--api-key", secret)
    assert done.returncode == 1, "it fails the same with every option off"
    assert secret not in done.stdout + done.stderr
