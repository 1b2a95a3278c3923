"""`firstlight look`, `why` and `check` as programs: a real process looked at, weighed here, and a start foreseen."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firstlight.core.bundle import read_bundle
from firstlight.core.record import to_json
from firstlight.testing.bundles import bundle, front, rank

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A Python process that waits."""
    code = "import threading\nprint('ready', flush=True)\nthreading.Event().wait()"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_look_is_written_and_can_be_weighed(cli: Cli, sleeper: int, tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    looked = cli("look", str(sleeper), "--apart", "1", "-o", str(seen))
    assert looked.returncode == 0, looked.stderr
    assert str(sleeper) in looked.stdout

    written = read_bundle(seen.read_bytes())
    assert [one.process.id.pid for one in written.looks[-1].processes] == [sleeper]
    assert len(written.looks) == 2

    weighed = cli("why", str(seen))
    assert weighed.returncode == 0, weighed.stderr
    assert "cause unknown" in weighed.stdout
    assert "Environment" in weighed.stdout


def test_a_look_as_json_goes_through_a_pipe(cli: Cli, sleeper: int) -> None:
    weighed = cli(
        "look",
        str(sleeper),
        "--apart",
        "1",
        "--json",
        shell=f"| {shlex.quote(sys.executable)} -m firstlight why - --json",
    )
    assert json.loads(weighed.stdout)["outcome"] == "looked"


RANKS = """
import os, sys
end, _ = os.pipe()
child = os.fork()
if child:
    print(child, flush=True)
os.read(end, 1)
"""


@pytest.mark.parametrize("alone", [(), ("--alone",)])
def test_a_look_at_a_rank_is_one_at_its_server(cli: Cli, tmp_path: Path, alone: tuple[str, ...]) -> None:
    output = tmp_path / "seen.json"
    with subprocess.Popen([sys.executable, "-c", RANKS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            looked = cli("look", str(child), "--apart", "1", "-o", str(output), *alone)
        finally:
            os.kill(child, signal.SIGKILL)
            process.kill()
    assert looked.returncode == 0, looked.stderr
    pids = {one.process.id.pid for one in read_bundle(output.read_bytes()).looks[-1].processes}
    assert pids == ({child} if alone else {process.pid, child})
    assert (f"first process is {process.pid}" in looked.stderr) is not bool(alone)


ZOMBIE = """
import os
import shlex
end, other = os.pipe()
child = os.fork()
if child == 0:
    os.close(other)
    os.read(end, 1)
    os._exit(3)
os.close(end)
os.close(other)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
mine, _ = os.pipe()
print(child, flush=True)
os.read(mine, 1)
"""


def test_a_child_that_ended_and_was_not_waited_for_is_in_the_bundle(cli: Cli, tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    with subprocess.Popen([sys.executable, "-c", ZOMBIE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            looked = cli("look", str(process.pid), "--apart", "1", "-o", str(seen))
        finally:
            process.kill()
    assert looked.returncode == 0, looked.stderr
    (gone,) = read_bundle(seen.read_bytes()).exits
    assert (gone.id.pid, gone.code) == (child, 3)
    assert f"(pid {child}) exited with code 3" in " ".join(cli("why", str(seen)).stdout.split())


def test_a_look_keeps_the_secrets_of_a_command(cli: Cli, tmp_path: Path) -> None:
    code = "import time\nprint('ready', flush=True)\ntime.sleep(600)"
    environ = {**os.environ, "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwx"}
    argv = [sys.executable, "-c", code, "--api-key", "verysecretkey"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            looked = cli("look", str(process.pid), "--apart", "1", "--json")
        finally:
            process.kill()
    assert "verysecretkey" not in looked.stdout
    assert "hf_abcdefghijklmnopqrstuvwx" not in looked.stdout


def test_the_word_on_a_look_has_no_secrets_and_no_escapes(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2Japi_key=verysecretkey"
    os.mkfifo(path)
    code = "import sys\nprint('ready', flush=True)\nopen(sys.argv[1])"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            looked = cli("look", str(process.pid), "--apart", "1", "-o", str(tmp_path / "seen.json"))
        finally:
            process.kill()
    assert "FIFO" in looked.stdout
    assert "verysecretkey" not in looked.stdout
    assert "\x1b" not in looked.stdout


def test_a_process_that_is_not_there_cannot_be_looked_at(cli: Cli) -> None:
    looked = cli("look", "4194303")
    assert looked.returncode == 2
    assert "there is no process" in looked.stderr


def test_the_bundles_of_two_nodes_are_one_server(cli: Cli, tmp_path: Path) -> None:
    for node in range(2):
        made = bundle(front(), rank(0), rank(1), node=node, nodes=2)
        (tmp_path / f"{node}.json").write_bytes(to_json(made))
    weighed = cli("why", str(tmp_path / "0.json"), str(tmp_path / "1.json"), "--json")
    assert weighed.returncode == 0, weighed.stderr
    ranks = {one["rank"] for one in json.loads(weighed.stdout)["processes"] if one["rank"] >= 0}
    assert ranks == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a bundle"),
        (b"{}", "not a bundle"),
        (b'{"format": "firstlight-bundle", "version": 99}', "newer firstlight"),
        (b"[" * 100_000, "not a bundle"),
    ],
)
def test_what_is_no_bundle_is_said_to_be_none(cli: Cli, tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(content)
    weighed = cli("why", str(path))
    assert weighed.returncode == 2
    assert said in weighed.stderr
    assert f"{path}: " in weighed.stderr
    assert "Traceback" not in weighed.stderr


@pytest.mark.parametrize("name", ["nosuch.json", "nowhere/look", "look-4711.jsn"])
def test_a_file_that_is_not_there_is_said_not_to_be(cli: Cli, name: str) -> None:
    weighed = cli("why", name)
    assert weighed.returncode == 2
    assert f"there is no file {name}" in weighed.stderr
    assert "firstlight look PID" in weighed.stderr


def test_a_run_without_a_bundle_is_told_from_no_run(cli: Cli) -> None:
    weighed = cli("why", "last")
    assert weighed.returncode == 2
    assert "firstlight look PID" in weighed.stderr


def test_a_check_finds_the_port_taken(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        checked = cli("check", "--json", "--", "vllm", "serve", "some/model", "--port", str(port))
    assert checked.returncode == 1, checked.stderr
    found = {finding["id"]: finding["verdict"] for finding in json.loads(checked.stdout)}
    assert found["port_in_use"] == "established"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which there is a program by the name of an engine."""
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


def foreseen(checked: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    return {finding["id"]: finding["verdict"] for finding in json.loads(checked.stdout)}


def test_a_check_of_a_proxy_is_a_hint(cli: Cli, path: str) -> None:
    variables = {"http_proxy": "http://10.1.2.3:3128", "no_proxy": "", "NO_PROXY": "", "PATH": path}
    checked = cli("check", "--json", "--", "vllm", "serve", "some/model", "--port", "0", **variables)
    found = {finding["id"]: finding["verdict"] for finding in json.loads(checked.stdout)}
    assert found["http_proxy"] == "supported"
    assert checked.returncode == 0


def test_a_check_needs_a_command(cli: Cli) -> None:
    assert cli("check").returncode == 2


@pytest.mark.parametrize("program", ["nosuchprogram", "/nowhere/vllm", "{here}/no-program", "{here}"])
def test_a_check_says_that_a_command_cannot_be_run(cli: Cli, program: str, tmp_path: Path) -> None:
    (tmp_path / "no-program").touch(0o644)
    program = program.format(here=tmp_path)
    checked = cli("check", "--json", "--", program, "serve", "some/model")
    assert checked.returncode == 1
    assert foreseen(checked)["not_startable"] == "established"


def test_a_check_says_that_a_script_has_no_interpreter(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "serve"
    script.write_text("#!/moved/venv/bin/python\n")
    script.chmod(0o755)
    checked = cli("check", "--", str(script))
    assert checked.returncode == 1
    assert "/moved/venv/bin/python" in checked.stdout


def test_a_check_says_that_there_is_no_model(cli: Cli, path: str, tmp_path: Path) -> None:
    there = tmp_path / "model"
    there.mkdir()
    for model, word in ((str(tmp_path / "no-model"), "established"), (str(there), None), ("some/model", None)):
        found = foreseen(cli("check", "--json", "--", "vllm", "serve", model, "--port", "0", PATH=path))
        assert found.get("model_not_found") == word
        assert "not_startable" not in found
