"""How the server starts, stalls, fails and ends: real processes, real signals."""

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

Start = Callable[..., Any]
LONG = {"prompt": "Once", "max_tokens": 30000, "temperature": 0}
ONE_THREAD = ("--threads", "1", "--max-model-len", "32768")


def test_it_answers_from_the_first_second_and_says_where_it_is(start: Start, tiny_model: Path) -> None:
    server = start(tiny_model).listening()
    os.kill(_worker_of(server), signal.SIGSTOP)
    reply = server.ask("/health")
    assert reply.status == 503
    assert reply.json["status"] == "starting"
    assert reply.json["phase"] in {"spawn", "config", "import"}
    assert reply.json["ranks"][0]["pid"] == server.worker_pid
    refused = server.ask("/v1/models")
    assert refused.status == 503
    assert refused.error["code"] == "not_ready"
    assert int(refused.headers["retry-after"]) > 0
    os.kill(server.worker_pid, signal.SIGCONT)
    server.line("ready url=")
    assert server.ask("/health").status == 200


def _worker_of(server: Any) -> int:
    """The worker's pid, from the first line that it writes."""
    server.line("[firstlight worker rank=0")
    return int(server.worker_pid)


def test_asked_to_stop_it_stops_at_once_and_leaves_nothing(
    start: Start, tiny_model: Path, is_alive: Callable[[int], bool]
) -> None:
    server = start(*ONE_THREAD, tiny_model).ready()
    connection, _ = server.stream("/v1/completions", LONG)
    os.kill(server.process.pid, signal.SIGINT)
    assert server.exit_code() == 0
    server.line("info: asked to stop; all processes of this server have ended")
    connection.close()
    assert not is_alive(server.worker_pid)
    with pytest.raises(ConnectionRefusedError):
        server.ask("/health")


def test_stopped_while_it_starts_it_leaves_nothing(
    start: Start, tiny_model: Path, is_alive: Callable[[int], bool]
) -> None:
    server = start(tiny_model).listening()
    server.line("phase=import begin")
    assert server.end() == 0
    assert not is_alive(server.worker_pid)


def test_a_killed_worker_is_named_to_everyone(start: Start, tiny_model: Path) -> None:
    server = start(*ONE_THREAD, tiny_model).ready()
    connection, response = server.stream("/v1/completions", LONG)
    os.kill(server.worker_pid, signal.SIGKILL)
    rest = response.read()
    connection.close()
    event = json.loads(
        [line for line in rest.splitlines() if line.startswith(b"data: {")][-1].removeprefix(b"data: ")
    )
    death = f"worker rank=0 pid={server.worker_pid} was killed by SIGKILL (phase=serving, 1 request in flight)"
    assert event["error"]["message"] == death
    assert event["error"]["code"] == "worker_lost"
    reply = server.ask("/health")
    assert reply.status == 503
    assert reply.json["status"] == "failed"
    assert reply.json["reason"] == death
    assert server.exit_code() == 1
    assert server.line("error:").endswith(f"error: {death}")


def test_a_killed_front_takes_a_stopped_worker_with_it(
    start: Start, tiny_model: Path, is_alive: Callable[[int], bool]
) -> None:
    server = start(tiny_model).ready()
    os.kill(server.worker_pid, signal.SIGSTOP)
    worker = os.pidfd_open(server.worker_pid)
    os.kill(server.process.pid, signal.SIGKILL)
    _await_end(worker)
    assert not is_alive(server.worker_pid)


def _await_end(pidfd: int) -> None:
    ended, _, _ = select.select([pidfd], [], [], 30)
    os.close(pidfd)
    assert ended, "the worker lives on"


def test_an_idle_worker_is_no_stall_but_a_stopped_one_is_until_it_comes_back(start: Start, tiny_model: Path) -> None:
    server = start("--stall-after", "2", *ONE_THREAD, tiny_model).ready()
    (before,) = server.ask("/health").json["ranks"]
    later = server.ask("/health").json["elapsed_s"] + 3
    (after,) = server.until(lambda health: health["elapsed_s"] > later, "three seconds later")["ranks"]
    assert server.ask("/health").json["status"] == "ready"
    assert after["steps"] == before["steps"], "an idle worker does no work, and says so"
    connection, response = server.stream("/v1/completions", LONG)
    os.kill(server.worker_pid, signal.SIGSTOP)
    document = server.until(lambda health: health["status"] == "stalled", "stalled")
    assert document["in_flight"] == 1
    assert document["reason"].startswith(f"worker rank=0 pid={server.worker_pid} has made no progress for ")
    assert server.ask("/health").status == 503
    assert "has made no progress" in server.line("warning:")
    os.kill(server.worker_pid, signal.SIGCONT)
    server.until(lambda health: health["status"] == "ready", "ready again")
    assert response.readline() == b"\n"
    assert response.readline().startswith(b"data: {"), "the answer goes on"
    connection.close()


def test_a_taken_port_is_one_clear_line(start: Start, tiny_model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = start("--port", str(port), tiny_model)
        assert server.exit_code() == 2
    assert f"port {port} on 127.0.0.1 is taken" in server.line("error:")


def test_workers_that_cannot_be_started_are_one_clear_line(tiny_model: Path) -> None:
    """As at a limit of files or processes; here, since root has no such limits, the program is missing."""
    script = (
        "import sys; from pathlib import Path; from firstlight.embedded import options, serve;"
        "asked = options.parse_options(['--port', '0', sys.argv[1]], 'test', Path);"
        "sys.exit(serve.serve(asked, 'test', ['/nowhere/worker']))"
    )
    program = [sys.executable, "-c", script, tiny_model]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    (said,) = (line for line in done.stderr.splitlines() if "error:" in line)
    assert "the workers could not be started: [Errno 2]" in said
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_not_there(start: Start, tmp_path: Path) -> None:
    server = start(tmp_path / "nowhere")
    assert server.exit_code() == 2
    assert f"there is no model folder {tmp_path}/nowhere. Name a folder" in server.line("error:")


def test_a_drafter_that_is_not_there_is_said_before_anything_is_loaded(
    start: Start, tiny_model: Path, tmp_path: Path
) -> None:
    server = start(tiny_model, "--drafter", tmp_path / "nowhere")
    assert server.exit_code() == 2
    assert f"there is no drafter folder {tmp_path}/nowhere. Name the folder of an EAGLE-3" in server.line("error:")
    assert server.worker_pid == 0


def test_an_address_of_another_machine_has_a_way_out(start: Start, tiny_model: Path) -> None:
    server = start(tiny_model, "--host", "192.0.2.1")  # RFC 5737: nobody has it
    assert server.exit_code() == 2
    said = server.line("error:")
    assert "cannot listen on 192.0.2.1" in said
    assert "--host" in said


def test_a_cache_that_holds_no_request_is_said_in_tokens(start: Start, tiny_model: Path) -> None:
    server = start(tiny_model, "--kv-tokens", "20", "--max-model-len", "64")
    assert "the longest request, 64 tokens, needs" in (said := server.line("error:"))
    assert "room for 32 tokens only. Set a smaller --max-model-len, or a larger --kv-tokens" in said
    assert server.exit_code() == 1


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)], ids=["stderr", "all"])
def test_started_with_closed_streams_it_serves_and_writes_into_nothing_else(
    closed: tuple[int, ...], tiny_model: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "firstlight.embedded", "--port", str(port), *ONE_THREAD, str(tiny_model)]
    closing = "".join(f"os.close({number});" for number in closed)
    process = subprocess.Popen([sys.executable, "-c", f"import os;{closing}os.execv({command[0]!r}, {command!r})"])
    try:
        assert _ready(port)
        opened = [str(Path(f"/proc/{process.pid}/fd/{number}").readlink()) for number in closed]
        assert opened == [os.devnull] * len(closed)
    finally:
        process.terminate()
    assert process.wait(60) == 0


def _ready(port: int) -> bool:
    """Whether the server on the port is ready within a minute."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return True
        time.sleep(0.05)
    return False


def test_weights_cut_short_end_the_server_with_the_reason(
    start: Start, make_model: Callable[..., Path], tmp_path: Path
) -> None:
    weights = make_model(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    server = start(tmp_path)
    reason = server.line("error:")
    assert reason.startswith("[firstlight worker rank=0")
    assert f"{weights} ({weights.stat().st_size} bytes) is damaged or cut short" in reason
    assert server.line("error:").endswith("exited with code 1 (phase=config, 0 requests in flight)")
    assert server.exit_code() == 1


def test_no_tokenizer_ends_the_server_with_the_reason(
    start: Start, make_model: Callable[..., Path], tmp_path: Path
) -> None:
    (make_model(tmp_path) / "tokenizer.json").unlink()
    server = start(tmp_path)
    assert f"{tmp_path} has no tokenizer.json. Copy it" in server.line("error:")
    assert server.exit_code() == 1


def test_scores_that_are_not_numbers_never_get_to_a_user(
    start: Start, make_model: Callable[..., Path], tmp_path: Path
) -> None:
    path = make_model(tmp_path) / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"] = np.full_like(tensors["model.norm.weight"], np.nan)
    save_file(tensors, path)
    server = start(tmp_path)
    assert "first scores are not finite numbers" in server.line("error:")
    assert server.exit_code() == 1


def test_the_command_line_passes_everything_on(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("firstlight")
    command = [script, "serve", "--port", "0", tmp_path / "nowhere"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "there is no model folder" in ended.stderr
    wrong = subprocess.run([script, "serve", "--port", "-1"], capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2
    assert "-1 is not between 0 and 65535" in wrong.stderr
    for option, kind in (("--port", "whole number"), ("--stall-after", "number")):
        command = [script, "serve", option, "soon"]
        wrong = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert wrong.stderr.endswith(f"argument {option}: 'soon' is not a {kind}\n")
