"""The questions as the watcher asks them: where they go, and what their failure means."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from firstlight.clock import SystemClock
from firstlight.core.server import ServerCommand
from firstlight.supervise.questions import verify
from firstlight.supervise.questions.seek import Questions, StillServing
from firstlight.supervise.questions.verify import Answer, AnswerKind

T = TypeVar("T")
CLOCK = SystemClock()
METRICS = b"vllm:num_requests_running 3\nvllm:num_requests_waiting 0\n"
COMPLETION = json.dumps({"choices": [{"text": " world"}]}).encode()


def until(ask: Callable[[], T | None]) -> T:
    ends = time.monotonic() + 30.0
    while (found := ask()) is None:
        assert time.monotonic() < ends, "waited 30 s for a server that answers at once"
        time.sleep(0.005)
    return found


@pytest.fixture
def port_on_another_address() -> Iterator[int]:
    """A server that listens on 127.0.0.7 alone, and knows its requests in flight."""
    listener = socket.create_server(("127.0.0.7", 0))
    threading.Thread(target=_serve, args=(listener,), daemon=True).start()
    yield int(listener.getsockname()[1])
    listener.close()


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            body = METRICS if b" /metrics " in connection.recv(65536) else COMPLETION
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def test_all_questions_go_where_the_first_was_answered(port_on_another_address: int) -> None:
    port = port_on_another_address
    command = ServerCommand(engine="vllm", argv=(), port=port)
    questions = Questions(command, CLOCK, prompt="Hello", max_tokens=16, canary_s=0.0)
    answer = until(lambda: questions.poll(port, ("127.0.0.7",)))
    assert (answer.kind, answer.host) == (AnswerKind.TOKEN, "127.0.0.7")
    assert until(lambda: questions.in_flight(port, quiet_s=0.0, clients=0) == 3 or None)
    until(lambda: questions.poll(port) or (None if questions.completing else True))
    assert questions.completion is not None
    assert questions.completion.text == " world"


@pytest.mark.parametrize(("kind", "against_it"), [(AnswerKind.NOT_ASKED, False), (AnswerKind.ERROR, True)])
def test_only_the_servers_own_failure_counts_against_it(
    monkeypatch: pytest.MonkeyPatch, kind: AnswerKind, against_it: bool
) -> None:
    asked = threading.Event()

    def ask(*_: object, **__: object) -> Answer:
        asked.set()
        if kind is AnswerKind.NOT_ASKED:
            raise RuntimeError("a fault of firstlight")
        return Answer(kind=kind, fact="it answered 500")

    monkeypatch.setattr(verify, "ask", ask)
    still = StillServing(ServerCommand(engine="vllm", argv=()), CLOCK, canary_s=0.001)

    def answered() -> bool | None:
        still.poll(9, quiet_s=1.0, clients=0)
        return True if asked.is_set() and not still.canary_age_s else None

    until(answered)
    assert (still.failed is not None) == against_it
