"""Clients that mean harm, or are broken: the server answers them or drops them, and goes on answering the others."""

import json
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firstlight.embedded.front import bodies, http

COMPLETIONS = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
ECHO = json.dumps({"prompt": "echo hi", "max_tokens": 20}).encode()
HOLD = json.dumps({"prompt": "hold", "max_tokens": 5}).encode()
DEADLINE_S = 60.0


def request(body: bytes = ECHO, head: bytes = COMPLETIONS) -> bytes:
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


@pytest.fixture
def server(scripted: Any) -> Iterator[Any]:
    """The front, which must be well after each of these."""
    yield scripted
    scripted.until(lambda health: health["in_flight"] == 0, "nothing in flight")
    reply = scripted.ask("/v1/completions", {"prompt": "echo still here", "max_tokens": 100})
    assert reply.json["choices"][0]["text"] == "still here"


@pytest.fixture
def call(server: Any) -> Iterator[Callable[[], socket.socket]]:
    """Open connections; all are closed in the end."""
    opened: list[socket.socket] = []

    def connected() -> socket.socket:
        opened.append(socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S))
        return opened[-1]

    yield connected
    for sock in opened:
        sock.close()


def answer(sock: socket.socket) -> tuple[int, bytes]:
    """The next response, which has a length: status and body. What came behind it is left out."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        raw += _received(sock)
    head, _, body = raw.partition(b"\r\n\r\n")
    (length,) = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < length:
        body += _received(sock)
    return int(head.split()[1]), body[:length]


def _received(sock: socket.socket) -> bytes:
    chunk = sock.recv(1 << 16)
    assert chunk, "the server closed the connection"
    return chunk


def error(body: bytes) -> Any:
    found = json.loads(body)["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


def test_a_body_of_100_mb_is_refused_before_it_is_sent(call: Callable[[], socket.socket]) -> None:
    sock = call()
    sock.sendall(COMPLETIONS + b"content-length: 104857600\r\n\r\n")
    status, body = answer(sock)
    assert status == 413
    assert error(body)["code"] == "body_too_large"


def test_who_sends_100_mb_all_the_same_gets_the_answer_too(server: Any) -> None:
    before = _memory(server.process.pid)
    reply = server.ask("/v1/completions", raw=b" " * (100 << 20))
    assert reply.status == 413
    assert _memory(server.process.pid) - before < 32 << 20


def test_a_body_without_a_length_is_refused_once_it_is_too_large(call: Callable[[], socket.socket]) -> None:
    sock = call()
    sock.sendall(COMPLETIONS + b"transfer-encoding: chunked\r\n\r\n")
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    for _ in range(bodies.MAX_BODY // (1 << 20) + 1):
        sock.sendall(chunk)
    assert answer(sock)[0] == 413


def test_large_bodies_together_are_bounded(server: Any, call: Callable[[], socket.socket]) -> None:
    before = _memory(server.process.pid)
    size = bodies.MAX_BODY - 1
    socks = [call() for _ in range(bodies.MAX_TOGETHER // size + 4)]
    for sock in socks:
        sock.sendall(COMPLETIONS + b"content-length: %d\r\n\r\n" % size + b" " * (size - 10))
    refused = select.select(socks, [], [], DEADLINE_S)[0]
    assert refused, "one has to go"
    for sock in refused:
        status, body = answer(sock)
        assert status == 429
        assert error(body)["code"] == "too_many_bytes"
    assert _memory(server.process.pid) - before < 3 * bodies.MAX_TOGETHER
    for sock in socks:
        sock.close()


def _memory(pid: int) -> int:
    """Resident bytes (proc_pid_statm(5))."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_length_that_is_a_lie_or_a_joke(call: Callable[[], socket.socket]) -> None:
    for length in (b"-1", b"1e9", b"99999999999999999999999", b"0x10", b"5, 6", b"\xb2"):
        sock = call()
        sock.sendall(COMPLETIONS + b"content-length: " + length + b"\r\n\r\n")
        assert answer(sock)[0] in {400, 413}


NOT_HTTP = {
    "noise": b"\x00\x01\x02\xff\xfe\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50 + b"\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "a header without a colon": b"GET /health HTTP/1.1\r\nhost: x\r\nnonsense\r\n\r\n",
    "a huge header": b"GET /health HTTP/1.1\r\nhost: x\r\nx: " + b"a" * (1 << 17) + b"\r\n\r\n",
    "two ways to tell the length": COMPLETIONS + b"content-length: 5\r\ntransfer-encoding: gzip\r\n\r\nhello",
}


@pytest.mark.parametrize("raw", NOT_HTTP.values(), ids=NOT_HTTP.keys())
def test_what_is_not_http_is_refused_in_our_shape(call: Callable[[], socket.socket], raw: bytes) -> None:
    sock = call()
    sock.sendall(raw)
    status, body = answer(sock)
    assert status in {400, 501}
    error(body)
    assert _dropped(sock)


def test_noise_does_not_fill_the_log(start_scripted: Callable[..., Any]) -> None:
    server = start_scripted().ready()
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as sock:
            sock.sendall(NOT_HTTP["noise"])
            assert answer(sock)[0] == 400
    assert server.end() == 0
    with pytest.raises(AssertionError):
        server.line("there is no such line")
    assert sum("warning: Invalid HTTP request" in line for line in server.log) <= 2


def test_requests_one_after_the_other_without_waiting(call: Callable[[], socket.socket]) -> None:
    sock = call()
    sock.sendall(request() * 20)
    file = sock.makefile("rb")
    for _ in range(20):
        assert b"200" in file.readline()
        length = 0
        while (line := file.readline()) != b"\r\n":
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        assert json.loads(file.read(length))["choices"][0]["text"] == "hi"


def test_noise_behind_a_request_spoils_only_its_own_connection(call: Callable[[], socket.socket]) -> None:
    sock = call()
    sock.sendall(request() + b"\xff\xff\xff\xff\r\n\r\n")
    assert answer(sock)[0] in {200, 400}


@pytest.mark.parametrize("more", [b"\xff\xff\r\n\r\n", b"\r\n", request(), b"x" * 50_000], ids=len)
def test_who_sends_more_and_goes_away_is_noticed(server: Any, call: Callable[[], socket.socket], more: bytes) -> None:
    sock = call()
    sock.sendall(request(HOLD))
    server.until(lambda health: health["in_flight"] == 1, "one request")
    sock.sendall(more)
    sock.close()
    server.until(lambda health: health["in_flight"] == 0, "its place is free")


def test_who_sends_much_more_before_he_is_answered_is_dropped(server: Any, call: Callable[[], socket.socket]) -> None:
    sock = call()
    sock.sendall(request(HOLD) + b"x" * (3 * http.MOST_AHEAD))
    assert _dropped(sock)
    server.until(lambda health: health["in_flight"] == 0, "its place is free")


def test_half_a_request_and_no_more(call: Callable[[], socket.socket]) -> None:
    for part in (b"", b"PO", COMPLETIONS, COMPLETIONS + b"content-length: 100\r\n\r\n{"):
        sock = call()
        sock.sendall(part)
        sock.close()


def test_a_body_that_is_not_awaited_is_no_request(call: Callable[[], socket.socket]) -> None:
    """A client that asks before it sends (expect: 100-continue) is told to go on, or that it need not."""
    sock = call()
    sock.sendall(COMPLETIONS + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(ECHO))
    assert _received(sock).startswith(b"HTTP/1.1 100 ")
    sock.sendall(ECHO)
    assert answer(sock)[0] == 200


def test_500_connections_at_once(server: Any, call: Callable[[], socket.socket]) -> None:
    socks = [call() for _ in range(500)]
    for sock in socks:
        sock.sendall(request(HOLD))
    answered = _statuses(socks, 500 - 8)
    assert set(answered) == {429}
    assert server.ask("/health").status == 200
    for sock in socks:
        sock.close()


def _statuses(socks: list[socket.socket], number: int) -> list[int]:
    """The statuses of the first `number` answers."""
    poll = select.poll()
    waiting = {sock.fileno(): sock for sock in socks}
    for sock in socks:
        poll.register(sock, select.POLLIN)
    statuses: list[int] = []
    until = time.monotonic() + DEADLINE_S
    while len(statuses) < number and time.monotonic() < until:
        for fd, _ in poll.poll(1000):
            statuses.append(answer(waiting[fd])[0])
            poll.unregister(fd)
    assert len(statuses) == number
    return statuses


@pytest.fixture(scope="module")
def impatient(start_scripted: Callable[..., Any]) -> Any:
    """A front that waits a second where others wait half a minute."""
    deadlines = {"HEAD_DEADLINE_S": http.HEAD_DEADLINE_S, "WRITE_DEADLINE_S": http.WRITE_DEADLINE_S}
    assert all(seconds >= 10 for seconds in deadlines.values())
    return start_scripted("--max-model-len", "4000000", program="impatient_front.py").ready()


@pytest.mark.parametrize("part", [b"", b"GET /health HTTP/1.1\r\nhost: x", COMPLETIONS])
def test_who_never_ends_the_head_is_dropped(impatient: Any, part: bytes) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=DEADLINE_S) as sock:
        sock.sendall(part)
        assert _dropped(sock)


def test_who_sends_the_head_drop_by_drop_is_dropped(impatient: Any) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=0.05) as sock:
        until = time.monotonic() + DEADLINE_S
        sock.sendall(b"GET /health HTTP/1.1\r\n")
        try:
            while time.monotonic() < until:
                sock.sendall(b"x")
                select.select([sock], [], [], 0.05)
        except OSError:
            return
        raise AssertionError("still connected")


def test_a_body_that_never_ends_is_refused(impatient: Any) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=DEADLINE_S) as sock:
        sock.sendall(COMPLETIONS + b"content-length: 100\r\n\r\n{")
        status, body = answer(sock)
        assert status == 408
        assert "did not come within" in error(body)["message"]


def test_who_does_not_read_is_dropped_and_cancelled(impatient: Any) -> None:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", impatient.port))
    flood = {"prompt": "flood", "max_tokens": 3_000_000, "stream": True, "logprobs": 20}
    sock.sendall(request(json.dumps(flood).encode()))
    impatient.until(lambda health: health["in_flight"] == 1, "one request")
    impatient.until(lambda health: health["in_flight"] == 0, "its connection was dropped")
    sock.close()


def _dropped(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True
