"""A server is started as asked or refused with the reason, and ended however it resists."""

import os
import signal
import sys
from pathlib import Path

import pytest

from firstlight import procfs
from firstlight.errors import CommandNotFound

STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up')\ntime.sleep(600)"

OBEDIENT = """
import signal, sys, time
def bye(*_):
    print("handled"); sys.exit(0)
signal.signal(signal.SIGTERM, bye)
print("up")
time.sleep(600)
"""

ESCAPES = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("escaped", os.getpid())
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""

FORKS_WITHOUT_END = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up")
while True:
    time.sleep(0.002)
    if os.fork():
        os._exit(0)
    os.setsid()
"""


def up(start):
    return lambda: "up\n" in start.log()


def test_a_server_that_obeys_is_only_asked(start, eventually):
    server = start.python(OBEDIENT)
    eventually(up(start), "the server")
    assert server.stop(10) == (1, 0, ())
    assert start.log() == "up\nhandled\n"
    assert start.living() == []


def test_a_server_that_ignores_sigterm_is_killed(start, eventually):
    server = start.python(STUBBORN)
    eventually(up(start), "the server")
    assert server.stop(0.2) == (1, 1, ())
    assert start.living() == []


def test_a_stopped_server_is_continued_so_that_it_can_end_itself(start, eventually):
    server = start.python(OBEDIENT)
    eventually(up(start), "the server")
    os.kill(server.root.pid, signal.SIGSTOP)
    eventually(lambda: procfs.stat(server.root.pid).state == "T", "the stop")
    assert server.stop(10) == (1, 0, ())
    assert "handled" in start.log()


def test_who_forks_twice_and_starts_a_session_is_found_and_ended(start, eventually):
    server = start.python(ESCAPES)
    eventually(lambda: start.log().endswith("\n"), "the grandchild")
    grandchild = int(start.log().split()[1])
    assert procfs.stat(grandchild).ppid == server.guard
    assert server.stop(0.2).left == ()
    assert start.living() == []


def test_a_server_behind_a_shell_is_asked_when_the_shell_has_gone(start, eventually):
    server = start.command("bash", "-c", 'trap "" HUP; "$0" -u -c "$1"; true', sys.executable, OBEDIENT)
    eventually(up(start), "the server")
    assert server.stop(10) == (2, 0, ())
    assert "handled" in start.log()


def test_processes_that_fork_without_end_are_ended(start, eventually):
    server = start.python(FORKS_WITHOUT_END)
    eventually(up(start), "the server")
    assert server.stop(0).left == ()
    assert start.living() == []


def test_stopping_shows_progress(start, eventually):
    server = start.python(STUBBORN)
    eventually(up(start), "the server")
    ticks = []
    server.stop(0.3, while_waiting=lambda: ticks.append(1))
    assert ticks


def test_a_server_that_has_ended_can_be_stopped_and_its_exit_is_reported(start, eventually):
    server = start.command("bash", "-c", "exit 7")
    exits = []
    eventually(lambda: exits.extend(server.poll()) or exits, "the exit")
    assert [(exit_.id, exit_.code) for exit_ in exits] == [(server.root, 7)]
    assert server.stop(10) == (0, 0, ())


def test_an_orphan_that_dies_is_reported_with_its_signal(start, eventually):
    server = start.python(ESCAPES)
    eventually(lambda: start.log().endswith("\n"), "the grandchild")
    grandchild = int(start.log().split()[1])
    os.kill(grandchild, signal.SIGKILL)
    exits = []
    eventually(lambda: exits.extend(server.poll()) or exits, "the exit")
    assert [(exit_.id.pid, exit_.signal) for exit_ in exits if exit_.id.pid == grandchild] == [(grandchild, 9)]


def test_command_and_environment_arrive_byte_for_byte(start, eventually):
    server = start.python(
        "import os, sys\nprint(sys.argv[1:] or os.environb[b'ODD'], os.getcwd())",
        environ={**os.environ, "ODD": "\udcff\n\u00fc"},
        cwd=Path("/"),
    )
    eventually(lambda: "/" in start.log(), "the line")
    assert start.log() == r"b'\xff\n\xc3\xbc' /" + "\n"
    assert server.stop(5).left == ()


def script(path: Path, text: str, mode: int) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        pytest.param("#!/bin/sh\n", 0o644, "it may not be executed", id="not executable"),
        pytest.param("echo no first line\n", 0o755, "it is not a program", id="no interpreter named"),
        pytest.param("#!/no/such/python\n", 0o755, "the interpreter that its first line names is not", id="dangling"),
    ],
)
def test_a_script_that_cannot_run_says_why(start, text, mode, said):
    path = script(start.folder / "serve", text, mode)
    with pytest.raises(CommandNotFound, match=said) as raised:
        start.command(path)
    assert raised.value.way_out
    assert start.living() == []


def test_a_command_that_does_not_exist_says_so(start):
    with pytest.raises(CommandNotFound, match="cannot run 'vlllm': there is no such command"):
        start.command("vlllm", "serve")
    assert start.living() == []


def test_a_folder_that_does_not_exist_says_so(start):
    with pytest.raises(CommandNotFound, match="cannot run in /no/such/folder"):
        start.command("true", cwd=Path("/no/such/folder"))


def test_a_server_starts_in_a_folder_that_was_removed_as_from_a_shell(start, eventually, monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    server = start.command("bash", "-c", "readlink /proc/self/cwd")
    eventually(lambda: start.log().endswith("\n"), "the line")
    assert start.log() == f"{gone} (deleted)\n"
    with pytest.raises(CommandNotFound, match=r"cannot run '\./serve': there is no such command"):
        start.command("./serve")
    assert server.stop(5).left == ()


def test_a_log_folder_that_cannot_be_written_is_a_gap_and_the_log_is_still_followed(start, eventually):
    start.folder = start.folder / "not there"
    server = start.command("bash", "-c", "echo still here; sleep 600")
    lines = []
    eventually(lambda: lines.extend(line for f in server.followers() for line in f.read()) or lines, "the line")
    assert lines[0].text == "still here"
    assert "No such file or directory" in server.gaps[0].detail
