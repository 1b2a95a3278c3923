"""`firstlight attach`, live: the same watching for a server that somebody else started, which is never touched."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.core.events import TokenVerified
from firstlight.core.vocabulary import Outcome
from firstlight.procfs import stat
from firstlight.testing.launcher import command, free_port
from firstlight.testing.running import Starter

WAIT_S = 120.0


class Servers:
    """Servers started as a person would: in a session of their own, their output in a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def __call__(self, program: str, *options: str | int) -> subprocess.Popen[bytes]:
        with (self._folder / f"{program}.log").open("wb") as log:
            server = subprocess.Popen(command(program, *options), stdout=log, stderr=log, start_new_session=True)
        self._started.append(server)
        return server

    def close(self) -> None:
        for server in self._started:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(WAIT_S)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Servers]:
    servers = Servers(tmp_path)
    yield servers
    servers.close()


def test_a_serving_server_is_verified_by_its_port_and_goes_on(serve: Servers, start: Starter) -> None:
    port = free_port()
    server = serve("comes_up", "--workers", 1, "--port", port)
    up = start.attach(str(server.pid), "--port", str(port))
    up.until(lambda event: isinstance(event, TokenVerified), WAIT_S)
    ended = start.attach("--once", f":{port}").wait(WAIT_S)
    assert ended.code == 0, ended.stderr[-4000:]
    assert ended.report.outcome is Outcome.SERVING
    assert server.poll() is None


def test_a_stalled_server_is_told_and_left_as_it_is(serve: Servers, start: Starter) -> None:
    server = serve("sigstop_worker")
    ended = start.attach("--once", str(server.pid)).wait(WAIT_S)
    assert ended.code == 1
    worker = ended.pid_of("worker_TP0")
    assert "stopped_process" in {finding.id for finding in ended.report.findings}
    assert str(worker) in ended.report.headline
    assert server.poll() is None
    assert stat(worker).state == "T", "it was stopped before, and nobody let it go on"


def test_a_server_that_is_killed_while_it_is_watched_has_exited(serve: Servers, start: Starter) -> None:
    port = free_port()
    server = serve("comes_up", "--port", port)
    up = start.attach(str(server.pid))
    up.until(lambda event: isinstance(event, TokenVerified), WAIT_S)
    server.kill()
    ended = up.wait(WAIT_S)
    assert ended.code == 3
    assert ended.report.outcome is Outcome.EXITED


def test_a_pid_that_is_nobody_is_one_clear_error(start: Starter) -> None:
    ended = start.attach("4194303").wait(WAIT_S)
    assert ended.code in {2, 4}
    assert "4194303" in ended.stderr
    assert "Traceback" not in ended.stderr
