"""How answers end: stop strings, errors, clients that go away or do not read."""

import contextlib
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Events = Callable[[bytes], list[Any]]
COMPLETIONS = "/v1/completions"


def texts(documents: list[Any]) -> list[str]:
    return [document["choices"][0]["text"] for document in documents if document["choices"]]


@pytest.mark.parametrize("a_step", [1, 2, 5, 100])
@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_across_tokens_and_steps(scripted: Any, events: Events, a_step: int, stream: bool) -> None:
    body = {
        "prompt": f"draft {a_step} one two STOP three",
        "max_tokens": 100,
        "stop": ["never", "two STOP", "STOP"],
        "stream": stream,
    }
    options = {"stream_options": {"include_usage": True}} if stream else {}
    raw = scripted.ask(COMPLETIONS, body | options).body
    documents = events(raw) if stream else [json.loads(raw)]
    assert "".join(texts(documents)) == "one "
    assert b"STOP" not in raw.replace(b'"stop"', b"")
    assert b"three" not in raw
    assert [d["choices"][0]["finish_reason"] for d in documents if d["choices"]][-1] == "stop"
    assert documents[-1]["usage"]["completion_tokens"] == len("one two STOP")


def test_what_only_looked_like_a_stop_string_is_sent(scripted: Any) -> None:
    body = {"prompt": "echo a STO", "max_tokens": 100, "stop": ["STOP"]}
    choice = scripted.ask(COMPLETIONS, body).json["choices"][0]
    assert choice["text"] == "a STO"
    assert choice["finish_reason"] == "stop"


def test_tokens_that_come_together_are_one_event(scripted: Any, events: Events) -> None:
    body = {"prompt": "draft 4 12345678", "max_tokens": 100, "stream": True}
    pieces = [text for text in texts(events(scripted.ask(COMPLETIONS, body).body)) if text]
    assert pieces == ["1234", "5678"]


def test_an_error_of_the_engine(scripted: Any, events: Events) -> None:
    body = {"prompt": "error no pages left", "max_tokens": 100}
    reply = scripted.ask(COMPLETIONS, body)
    assert reply.status == 500
    assert reply.error["message"] == "no pages left"
    assert reply.error["code"] == "generation_failed"
    documents = events(scripted.ask(COMPLETIONS, body | {"stream": True}).body)
    assert "".join(texts(documents[:-1])) == "xx"
    assert documents[-1]["error"]["message"] == "no pages left"


def cancelled(server: Any) -> list[int]:
    reply = server.ask(COMPLETIONS, {"prompt": "cancelled", "max_tokens": 1000})
    return list(json.loads(reply.json["choices"][0]["text"]))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["hold", "flood"])
def test_a_client_that_goes_away_is_cancelled_at_once(scripted: Any, prompt: str, stream: bool) -> None:
    before = len(cancelled(scripted))
    body = {"prompt": prompt, "max_tokens": 5000, "stream": stream}
    connection = scripted.connect()
    connection.request("POST", COMPLETIONS, json.dumps(body))
    scripted.until(lambda health: health["in_flight"] == 1, "one request")
    connection.close()
    scripted.until(lambda health: health["in_flight"] == 0, "nothing in flight")
    assert len(cancelled(scripted)) == before + 1


def test_a_stopped_request_is_cancelled_at_the_worker(scripted: Any) -> None:
    before = len(cancelled(scripted))
    scripted.ask(COMPLETIONS, {"prompt": "flood", "max_tokens": 5000, "stop": ["xxx"]})
    scripted.until(lambda health: health["in_flight"] == 0, "nothing in flight")
    assert len(cancelled(scripted)) == before + 1


def memory(pid: int) -> int:
    """Resident bytes (proc_pid_status(5))."""
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(rows["VmRSS"].split()[0]) * 1024


def test_a_client_that_does_not_read_takes_no_memory_and_loses_its_place(start_scripted: Any) -> None:
    server = start_scripted("--max-model-len", "4000000").ready()
    server.ask(COMPLETIONS, {"prompt": "flood", "max_tokens": 2000})
    before = memory(server.process.pid)
    deaf = []
    for _ in range(3):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        body = json.dumps({"prompt": "flood", "max_tokens": 3_000_000, "stream": True, "logprobs": 20}).encode()
        sock.sendall(b"POST %s HTTP/1.1\r\nhost: x\r\n" % COMPLETIONS.encode())
        sock.sendall(b"content-length: %d\r\n\r\n%s" % (len(body), body))
        deaf.append(sock)
    server.until(lambda health: health["in_flight"] == 3, "three requests")
    reply = server.ask(COMPLETIONS, {"prompt": "echo others are answered", "max_tokens": 100})
    assert reply.json["choices"][0]["text"] == "others are answered"
    _until_cancelled(server, 3)
    assert memory(server.process.pid) - before < 60 << 20
    for sock in deaf:
        with contextlib.suppress(OSError):
            sock.close()
    server.until(lambda health: health["in_flight"] == 0, "nothing in flight")


def _until_cancelled(server: Any, number: int) -> None:
    server.until(lambda _: len(cancelled(server)) == number, f"{number} requests cancelled")


def test_a_slow_reader_still_gets_everything(scripted: Any, events: Events) -> None:
    connection, response = scripted.stream(COMPLETIONS, {"prompt": "pace 200", "max_tokens": 100})
    scripted.until(lambda health: health["in_flight"] == 0, "the worker is done")
    rest = events(b"data: {}\n\n" + response.read().lstrip(b"\n"))
    connection.close()
    assert sum(len(text) for text in texts(rest[1:])) == 99


def test_a_worker_that_ends_is_named_in_every_answer(start_scripted: Any, events: Events) -> None:
    server = start_scripted().ready()
    connection, response = server.stream(COMPLETIONS, {"prompt": "pace 20", "max_tokens": 1000})
    reply = server.ask(COMPLETIONS, {"prompt": "die"})
    assert reply.status == 500
    assert "exited with code 7" in reply.error["message"]
    assert events(response.read().lstrip(b"\n"))[-1]["error"]["code"] == "worker_lost"
    connection.close()
    assert server.exit_code() == 1
