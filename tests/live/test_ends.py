"""How it ends, live: interrupted, kept, killed, exited, refused; and each time nothing is left that should not be."""

import http.client
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from firstlight.core.events import Event, Started, TokenVerified
from firstlight.core.vocabulary import Outcome
from firstlight.testing.launcher import free_port
from firstlight.testing.running import Starter
from firstlight.testing.scenarios import answered_by_another
from firstlight.testing.server import TinyServer

WAIT_S = 120.0


def serving(event: Event) -> bool:
    return isinstance(event, TokenVerified)


def began(event: Event) -> bool:
    return isinstance(event, Started)


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_takes_its_serving_server_along(number: signal.Signals, start: Starter) -> None:
    port = free_port()
    up = start("comes_up", "--workers", 2, "--port", port)
    up.until(serving, WAIT_S)
    assert answers(port)
    up.signal(number)
    ended = up.wait(WAIT_S)
    assert ended.report.outcome is Outcome.SERVING, "it had its verdict"
    assert ended.code == 0
    assert ended.left == ()
    assert not answers(port)


def test_interrupted_before_there_is_a_verdict_it_says_so(start: Starter) -> None:
    up = start("comes_up", "--seconds", 100)
    up.until(began, WAIT_S)
    up.signal(signal.SIGINT)
    ended = up.wait(WAIT_S)
    assert ended.report.outcome is Outcome.INTERRUPTED
    assert ended.code == 130
    assert ended.left == ()


def test_a_server_that_ignores_sigterm_and_hides_a_daemon_is_ended_whole(start: Starter) -> None:
    segment = Path("/dev/shm") / f"firstlight_testing_{os.getpid()}"
    up = start("stubborn", "--port", free_port(), "--segment", segment.name, up=["--once"])
    try:
        ended = up.wait(WAIT_S)
        assert ended.code == 0, ended.stderr[-4000:]
        assert ended.left == ()
        assert not segment.exists()
    finally:
        segment.unlink(missing_ok=True)


def test_keep_leaves_the_server_and_says_how_to_attach(start: Starter) -> None:
    port = free_port()
    up = start("comes_up", "--workers", 1, "--port", port, up=["--keep"])
    assert up.process.wait(WAIT_S) == 0
    assert answers(port)
    assert "firstlight attach" in up.said() + up.printed()


def test_killed_firstlight_ends_the_server_and_loses_nothing_of_its_log(start: Starter) -> None:
    port = free_port()
    up = start("comes_up", "--workers", 2, "--port", port)
    up.until(serving, WAIT_S)
    run = up.until(began, WAIT_S)
    up.process.kill()
    assert up.gone(), up.left()
    assert not answers(port)
    assert isinstance(run, Started)
    log = (Path(run.folder) / "stdout.log").read_text()
    assert "Loading weights: 1/4 shards" in log
    assert f"Listening on http://127.0.0.1:{port}" in log


def test_exit_code_0_before_serving_is_an_exit(start: Starter) -> None:
    ended = start("exits_zero").wait(WAIT_S)
    assert ended.code == 3
    assert ended.report.outcome is Outcome.EXITED
    assert [died.code for died in ended.report.exits] == [0]
    assert "code 0" in ended.report.headline


def test_a_port_that_is_lost_while_loading_is_the_first_error(start: Starter) -> None:
    port = free_port()
    up = start("port_taken", "--port", port)
    with answered_by_another(up, port, WAIT_S):
        ended = up.wait(WAIT_S)
    assert ended.code == 3
    assert ended.report.first_token is None, "it was the other process that answered"
    assert ended.report.first_error is not None
    assert "Address already in use" in ended.report.first_error.text
    assert f"a port that the server wants is taken; its own is {port}" in ended.report.headline


def test_a_port_that_is_taken_from_the_start_is_told_before_anything_is_started(start: Starter) -> None:
    with TinyServer(0) as other:
        ended = start("comes_up", "--port", other.server_port).wait(WAIT_S)
    assert ended.code == 2
    assert ended.all(Started) == []
    finding = next(finding for finding in ended.report.findings if finding.id == "port_in_use")
    assert finding.pids == (os.getpid(),)
    assert str(other.server_port) in ended.report.headline


def test_a_server_that_wants_a_key_gets_its_own_verdict(start: Starter) -> None:
    ended = start("turns_away", "--with", "key", "--port", free_port(), up=["--once"]).wait(WAIT_S)
    assert ended.code == 4
    assert "key" in ended.report.headline.lower()
    assert ended.left == ()


def test_a_server_that_says_503_for_ever_is_stalled(start: Starter) -> None:
    options = ("--with", "starting", "--port", free_port())
    ended = start("turns_away", *options, up=["--on-stall", "stop"]).wait(WAIT_S)
    assert ended.code == 1
    assert "503" in " ".join([ended.report.headline, *ended.report.next_steps])


def test_a_deadline_that_passes_while_it_moves_is_no_stall(start: Starter) -> None:
    ended = start("trickle_load", up=["--deadline", "6"]).wait(WAIT_S)
    assert ended.code == 5
    assert ended.report.outcome is Outcome.DEADLINE
    assert any(process.where for process in ended.report.processes), "who stands where is what is asked next"
    assert ended.left == ()


def test_a_deadline_that_passes_while_it_is_stalled_is_the_stall(start: Starter) -> None:
    ended = start("never_generates", up=["--on-stall", "wait", "--deadline", "28"]).wait(WAIT_S)
    assert ended.code == 1
    assert ended.report.outcome is Outcome.STALLED
    assert "no answer" in ended.report.headline
    assert ended.left == ()


def test_a_server_that_goes_into_the_background_is_followed_on(start: Starter, tmp_path: Path) -> None:
    launcher, port = tmp_path / "launcher.py", free_port()
    launcher.write_text(
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-m', 'firstlight.testing.programs.comes_up', '--port', sys.argv[1]],"
        " start_new_session=True)\n"
    )
    ended = start.command([sys.executable, str(launcher), str(port)], up=["--once"]).wait(WAIT_S)
    assert ended.code == 0
    assert ended.report.url.endswith(f":{port}")
    assert ended.left == ()


def test_on_stall_report_says_the_stall_and_goes_on_watching(start: Starter) -> None:
    up = start("sigstop_worker")
    said = up.until(lambda event: getattr(event, "report", None) is not None, WAIT_S)
    assert said.report.outcome is Outcome.STALLED  # type: ignore[union-attr]
    time.sleep(1)
    assert up.process.poll() is None, "whoever wants to look at the server must find it"
    assert up.left()
    up.signal(signal.SIGINT)
    ended = up.wait(WAIT_S)
    assert ended.code == 1
    assert ended.left == ()
