"""Joining a server that runs already: which log is its own."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.clock import SystemClock
from firstlight.supervise.attached import Attached

CODE = "import time\nprint('its own words', flush=True)\ntime.sleep(600)"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


@pytest.fixture
def server(log: Path) -> Iterator[int]:
    """A program that has written its line into `log`."""
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", CODE], stdout=file, stderr=subprocess.DEVNULL)
    while not log.read_bytes():
        assert process.poll() is None
    yield process.pid
    process.kill()
    process.wait()


def heard(pid: int) -> list[str]:
    return [line.text for follower in Attached(pid, SystemClock()).followers() for line in follower.read()]


def test_a_log_is_read_from_its_file(server: int) -> None:
    assert heard(server) == ["its own words"]


def test_a_log_that_was_removed_is_read_all_the_same(server: int, log: Path) -> None:
    log.unlink()
    assert heard(server) == ["its own words"]


def test_another_file_of_the_same_name_is_not_its_log(server: int, log: Path) -> None:
    log.unlink()
    log.write_text("words of another\n")
    assert heard(server) == ["its own words"]
