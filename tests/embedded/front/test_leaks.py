"""Whatever clients do, a real engine gives back every page, place and byte that they had."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

COMPLETIONS = "/v1/completions"
LONG_PROMPT = "ab " * 2000


@pytest.fixture(scope="module")
def server(tiny_model: Path, server_class: Any) -> Iterator[Any]:
    running = server_class(
        *("--port", "0", "--threads", "1", "--max-num-seqs", "3", "--max-queue", "3", "--drafter", "ngram"),
        *("--max-model-len", "32768", tiny_model),
    ).ready()
    yield running
    assert running.end() == 0


def measured(server: Any, name: str) -> float:
    rows = dict(line.rsplit(" ", 1) for line in server.ask("/metrics").body.decode().splitlines())
    return float(rows.get("firstlight:" + name, "0"))


def hang_up(server: Any, body: dict[str, Any], *, after: int) -> None:
    """Ask, read so many bytes of the answer, and go away."""
    raw = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(raw) + raw)
        while after > 0:
            after -= len(sock.recv(after))


def in_prefill(server: Any) -> None:
    hang_up(server, {"prompt": LONG_PROMPT, "max_tokens": 100}, after=0)


def in_a_stream(server: Any) -> None:
    hang_up(server, {"prompt": "ab", "max_tokens": 9000, "stream": True, "temperature": 0}, after=2000)


def in_a_whole_answer(server: Any) -> None:
    hang_up(server, {"prompt": "ab", "max_tokens": 9000, "temperature": 0}, after=0)


def while_waiting(server: Any) -> None:
    held = [server.stream(COMPLETIONS, {"prompt": "x", "max_tokens": 20000, "temperature": 0}) for _ in range(3)]
    server.until(lambda _: measured(server, "kv_cache_pages_used") > 0, "pages are in use")
    hang_up(server, {"prompt": LONG_PROMPT, "max_tokens": 10}, after=0)
    for connection, _ in held:
        connection.sock.shutdown(2)
        connection.close()


def at_a_stop_string(server: Any) -> None:
    text = server.ask(COMPLETIONS, {"prompt": "ab", "max_tokens": 50, "temperature": 0}).json["choices"][0]["text"]
    body = {"prompt": "ab", "max_tokens": 5000, "temperature": 0, "stop": [text[5:7]]}
    assert server.ask(COMPLETIONS, body).json["choices"][0]["finish_reason"] == "stop"


def with_a_full_queue(server: Any) -> None:
    held = [server.connect() for _ in range(12)]
    for connection in held:
        connection.request("POST", COMPLETIONS, json.dumps({"prompt": "y", "max_tokens": 20000}))
    server.until(lambda health: health["in_flight"] == 6, "all places taken")
    for connection in held:
        connection.close()


def with_bad_input(server: Any) -> None:
    for body in ({"prompt": [-1]}, {"prompt": "a" * 40000}, {"prompt": "a", "max_tokens": 1 << 40}, {"prompt": ""}):
        assert server.ask(COMPLETIONS, body).status == 400


FAULTS = [
    in_prefill,
    in_a_stream,
    in_a_whole_answer,
    while_waiting,
    at_a_stop_string,
    with_a_full_queue,
    with_bad_input,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_nothing_is_left_of_a_request_that_ended(server: Any, fault: Callable[[Any], None]) -> None:
    body = {"prompt": "the same", "max_tokens": 12, "temperature": 0, "logprobs": 1}
    before = server.ask(COMPLETIONS, body).json["choices"]
    fault(server)
    server.until(lambda health: health["in_flight"] == 0, "nothing in flight")
    server.until(lambda _: measured(server, "kv_cache_pages_used") == 0, "all pages given back")
    assert server.ask(COMPLETIONS, body).json["choices"] == before
