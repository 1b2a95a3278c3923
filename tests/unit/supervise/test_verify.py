"""Every state a server can be in when a token is asked for, each from a real little server on a real port.

Proxies that lead nowhere are set for all of them: the check of a local server must not be swallowed by one.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from firstlight.clock import Deadline, SystemClock
from firstlight.core import redact
from firstlight.core.gap import Gap
from firstlight.core.server import ServerCommand
from firstlight.core.vocabulary import GapReason
from firstlight.supervise.questions import verify
from firstlight.supervise.questions.answer_findings import finding_of
from firstlight.supervise.questions.http_question import Failure, exchange, reachable
from firstlight.supervise.questions.in_flight import requests_in_flight
from firstlight.supervise.questions.verify import Answer, AnswerKind, Asking, ask

CLOCK = SystemClock()
MODELS = {"data": [{"id": "smol"}, {"id": "other"}]}
COMPLETION = {"choices": [{"text": " world"}], "usage": {"completion_tokens": 1}}
CHAT = {"choices": [{"message": {"content": "Hello"}}], "usage": {"completion_tokens": 2}}
Routes = dict[str, tuple[int, object]]


@pytest.fixture(autouse=True)
def _proxies_that_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)


@pytest.fixture(autouse=True)
def _short_first_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never answers is told from one that does in a fraction of the usual seconds."""
    monkeypatch.setattr(verify, "HEALTH_S", 0.3)
    monkeypatch.setattr(verify, "MODELS_S", 0.3)


class Seen:
    """What a little server was asked."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.keys: list[str] = []
        self.payloads: list[dict[str, Any]] = []


class LittleServer(ThreadingHTTPServer):
    """Answers by path, 404 for everything else."""

    daemon_threads = True

    def __init__(self, routes: Routes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.routes = routes
        self.seen = Seen()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: LittleServer

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self.server.seen.payloads.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer()

    def _answer(self) -> None:
        self.server.seen.paths.append(self.path)
        self.server.seen.keys.append(self.headers.get("Authorization", ""))
        status, content = self.server.routes.get(self.path, (404, {"detail": "Not Found"}))
        body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def serve() -> Iterator[Callable[[Routes], LittleServer]]:
    servers: list[LittleServer] = []

    def start(routes: Routes) -> LittleServer:
        servers.append(LittleServer(routes))
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def raw() -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """Starts a TCP server that treats each connection as it is told; gives its port."""
    listeners: list[socket.socket] = []

    def start(treat: Callable[[socket.socket], None]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=_accept, args=(listener, treat), daemon=True).start()
        return int(listener.getsockname()[1])

    yield start
    for listener in listeners:
        listener.close()


def _accept(listener: socket.socket, treat: Callable[[socket.socket], None]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_treat, args=(connection, treat), daemon=True).start()


def _treat(connection: socket.socket, treat: Callable[[socket.socket], None]) -> None:
    try:
        with connection:
            treat(connection)
    except OSError:
        return  # the client has gone


def question(port: int, *, deadline_s: float = 5.0, **fields: Any) -> Answer:
    """The answer of a server; whatever it is, the redaction on its way into the journal leaves it as it is."""
    command = ServerCommand(engine="vllm", argv=("vllm", "serve", "m"), port=port, **fields)
    answer = ask(
        command,
        port=port,
        prompt="Hello",
        max_tokens=16,
        deadline_s=deadline_s,
        launched=CLOCK.monotonic() - 100.0,
        clock=CLOCK,
    )
    assert redact.text(answer.what) == answer.what
    return answer


def test_a_token_is_proof(serve: Callable[[Routes], LittleServer]) -> None:
    server = serve({"/health": (200, ""), "/v1/models": (200, MODELS), "/v1/completions": (200, COMPLETION)})
    answer = question(server.server_port)
    assert (answer.kind, answer.status, answer.health) == (AnswerKind.TOKEN, 200, 200)
    assert answer.token is not None
    assert (answer.token.text, answer.token.tokens, answer.token.model) == (" world", 1, "smol")
    assert answer.token.after_launch_s >= 100.0
    assert answer.token.request_s >= 0.0
    assert server.seen.payloads == [{"model": "smol", "prompt": "Hello", "max_tokens": 16, "temperature": 0}]


def test_the_name_from_the_command_wins_and_the_key_is_sent(serve: Callable[[Routes], LittleServer]) -> None:
    server = serve({"/health": (200, ""), "/v1/models": (200, MODELS), "/v1/completions": (200, COMPLETION)})
    assert question(server.server_port, served_name="mine", api_key="k").kind is AnswerKind.TOKEN
    assert server.seen.payloads[0]["model"] == "mine"
    assert set(server.seen.keys) == {"Bearer k"}


@pytest.mark.parametrize(
    ("completion", "kind"),
    [
        ({"choices": [{"text": ""}], "usage": {"completion_tokens": 1}}, AnswerKind.TOKEN),
        ({"choices": [{"text": "x"}]}, AnswerKind.TOKEN),
        ({"choices": [{"text": "x"}], "usage": {"completion_tokens": 10**30}}, AnswerKind.TOKEN),
        ({"choices": [{"text": "x"}], "usage": {"completion_tokens": -1}}, AnswerKind.TOKEN),
        ({"choices": [{"text": ""}]}, AnswerKind.NO_TOKEN),
        ({"choices": [{"text": ""}], "usage": {"completion_tokens": 0}}, AnswerKind.NO_TOKEN),
        ({"choices": [], "usage": {"completion_tokens": True}}, AnswerKind.UNREADABLE),
        ({"choices": "none"}, AnswerKind.UNREADABLE),
        ({"choices": {"text": [1]}, "usage": [5]}, AnswerKind.UNREADABLE),
        ({"choices": [5]}, AnswerKind.UNREADABLE),
        (["a", "list"], AnswerKind.UNREADABLE),
        ("not JSON at all", AnswerKind.UNREADABLE),
        ("[" * 200_000, AnswerKind.UNREADABLE),
        ("", AnswerKind.UNREADABLE),
    ],
)
def test_what_counts_as_a_token(
    serve: Callable[[Routes], LittleServer], completion: object, kind: AnswerKind
) -> None:
    server = serve({"/v1/completions": (200, completion)})
    answer = question(server.server_port)
    assert answer.kind is kind
    assert (answer.token is not None) == (kind is AnswerKind.TOKEN)


@pytest.mark.parametrize(
    ("refusal", "path", "reply", "text"),
    [
        (404, "/v1/chat/completions", CHAT, "Hello"),
        (400, "/v1/chat/completions", CHAT, "Hello"),
        (
            404,
            "/v1/chat/completions",
            {"choices": [{"message": {"content": None, "reasoning_content": "Hmm"}}]},
            "Hmm",
        ),
        (405, "/generate", {"text": " world", "meta_info": {"completion_tokens": 4}}, " world"),
    ],
)
def test_other_routes_are_tried(
    serve: Callable[[Routes], LittleServer], refusal: int, path: str, reply: object, text: str
) -> None:
    server = serve({"/v1/completions": (refusal, {"detail": "not here"}), path: (200, reply)})
    answer = question(server.server_port)
    assert answer.kind is AnswerKind.TOKEN
    assert answer.token is not None
    assert answer.token.text == text


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    answer = question(port)
    assert (answer.kind, answer.status, answer.health) == (AnswerKind.REFUSED, 0, None)
    assert "refused" in answer.what


def test_a_port_that_accepts_and_never_answers(raw: Callable[..., int]) -> None:
    port = raw(_never)
    answer = question(port)
    assert (answer.kind, answer.health) == (AnswerKind.NO_ANSWER, None)
    assert "accepts connections but answers no question" in answer.what


def test_a_hung_engine_behind_a_healthy_front(raw: Callable[..., int]) -> None:
    def hang_on_post(connection: socket.socket) -> None:
        if connection.recv(65536).startswith(b"POST"):
            _never(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    answer = question(raw(hang_on_post), deadline_s=1.0)
    assert (answer.kind, answer.health, answer.status) == (AnswerKind.NO_ANSWER, 200, 0)
    assert "/health says 200, but" in answer.what
    assert "no token within 1 s" in answer.what


def _never(connection: socket.socket) -> None:
    """Takes what comes until the client gives up."""
    while connection.recv(65536):
        pass


def _drip(beginning: bytes, byte: bytes) -> Callable[[socket.socket], None]:
    def drip(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(beginning)
        while True:
            connection.sendall(byte)
            time.sleep(0.02)  # the pace of the drip: each byte comes long before any timeout of a single read

    return drip


@pytest.mark.parametrize(
    ("beginning", "byte"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["status line", "header", "body", "chunks", "continue for ever"],
)
def test_a_server_that_drips_is_as_late_as_a_silent_one(
    raw: Callable[..., int], beginning: bytes, byte: bytes
) -> None:
    asking = Asking(
        ServerCommand(engine="vllm", argv=()),
        port=raw(_drip(beginning, byte)),
        prompt="Hello",
        max_tokens=1,
        deadline_s=1.0,
        launched=CLOCK.monotonic(),
        clock=CLOCK,
    )
    assert answered(asking).kind is AnswerKind.NO_ANSWER


def answered(asking: Asking) -> Answer:
    """The answer of a question in a thread; the deadline here only ends a broken test."""
    ends = time.monotonic() + 30.0
    while (answer := asking.poll()) is None:
        assert time.monotonic() < ends, "waited 30 s for the answer to a question with a deadline of its own"
        time.sleep(0.005)
    return answer


def test_a_body_without_end_is_cut(raw: Callable[..., int]) -> None:
    def pour(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    answer = question(raw(pour), deadline_s=20.0)
    assert answer.kind is AnswerKind.UNREADABLE
    assert "is not JSON" in answer.what


def test_503_with_the_phase_and_the_progress(serve: Callable[[Routes], LittleServer]) -> None:
    health = {"status": "starting", "phase": "weights", "progress": {"done": 1, "total": 4, "unit": "bytes"}}
    server = serve({"/health": (503, health)})
    answer = question(server.server_port)
    assert (answer.kind, answer.status, answer.health) == (AnswerKind.NOT_READY, 503, 503)
    assert "phase weights, 25 %" in answer.what
    assert server.seen.paths == ["/health"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"status": "stalled", "reason": "worker rank=0 has made no progress for 23 s"}, "no progress for 23 s"),
        ({"error": {"code": 503, "message": "Loading model"}}, "Loading model"),
        ({"phase": 7}, "not ready (503)"),
    ],
)
def test_503_in_the_servers_own_words(serve: Callable[[Routes], LittleServer], body: object, said: str) -> None:
    answer = question(serve({"/health": (503, body)}).server_port)
    assert answer.kind is AnswerKind.NOT_READY
    assert said in answer.what


def test_a_server_that_says_it_failed_is_not_waited_for(serve: Callable[[Routes], LittleServer]) -> None:
    health = {"status": "failed", "reason": "worker rank=0 pid=6 was killed by SIGKILL"}
    answer = question(serve({"/health": (503, health)}).server_port)
    assert answer.kind is AnswerKind.ERROR
    assert "was killed by SIGKILL" in answer.what


def test_a_token_counts_more_than_what_health_says(serve: Callable[[Routes], LittleServer]) -> None:
    server = serve({"/health": (503, ""), "/v1/completions": (200, COMPLETION)})
    answer = question(server.server_port)
    assert (answer.kind, answer.health) == (AnswerKind.TOKEN, 503)


def test_503_only_where_tokens_are_made(serve: Callable[[Routes], LittleServer]) -> None:
    answer = question(serve({"/health": (200, ""), "/v1/completions": (503, "busy")}).server_port)
    assert (answer.kind, answer.health, answer.status) == (AnswerKind.NOT_READY, 200, 503)
    assert "busy" in answer.what


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, {"error": {"message": "The model `mine` does not exist.", "type": "NotFoundError", "code": 404}}),
        (404, {"object": "error", "message": "The model `mine` does not exist.", "type": "NotFoundError"}),
        (400, {"error": {"message": "no such thing", "code": "model_not_found"}}),
    ],
)
def test_a_wrong_model_name_lists_what_is_served(
    serve: Callable[[Routes], LittleServer], status: int, error: object
) -> None:
    server = serve({"/v1/models": (200, MODELS), "/v1/completions": (status, error)})
    answer = question(server.server_port, served_name="mine")
    assert (answer.kind, answer.status) == (AnswerKind.WRONG_MODEL, status)
    assert "'mine'; it serves: smol, other" in answer.what


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("path", ["/v1/models", "/v1/completions"])
@pytest.mark.parametrize("key", ["", "wrong-key"])
def test_a_key_is_needed(serve: Callable[[Routes], LittleServer], status: int, path: str, key: str) -> None:
    answer = question(
        serve({"/health": (200, ""), path: (status, {"error": "Unauthorized"})}).server_port, api_key=key
    )
    assert (answer.kind, answer.status) == (AnswerKind.NEEDS_KEY, status)
    assert ("refuses the API key" if key else "wants an API key") in answer.what
    assert "set FIRSTLIGHT_API_KEY, or pass the key with the --api-key option" in answer.what
    assert answer.said == "Unauthorized"
    assert "wrong-key" not in answer.what


def test_a_key_that_no_header_can_carry_is_not_sent(serve: Callable[[Routes], LittleServer]) -> None:
    server = serve({"/v1/models": (401, "")})
    assert question(server.server_port, api_key="käy\n").kind is AnswerKind.NEEDS_KEY
    assert set(server.seen.keys) == {""}


def test_http_that_is_no_llm_server(serve: Callable[[Routes], LittleServer]) -> None:
    answer = question(serve({"/": (200, "hello")}).server_port)
    assert (answer.kind, answer.status) == (AnswerKind.NOT_OPENAI, 404)
    assert "offers no way to generate" in answer.what


@pytest.mark.parametrize("banner", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\x15\x03\x03\x00\x02\x02\x16", b"\n" * 70000])
def test_something_that_speaks_no_http(raw: Callable[..., int], banner: bytes) -> None:
    def greet(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(banner)

    answer = question(raw(greet))
    assert answer.kind is AnswerKind.NOT_OPENAI
    assert "does not speak HTTP" in answer.what


def test_connections_that_are_closed_at_once(raw: Callable[..., int]) -> None:
    answer = question(raw(lambda connection: connection.close()))
    assert answer.kind is AnswerKind.CLOSED
    assert "closes connections without an answer" in answer.what


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"error": {"message": "EngineDeadError: the engine\nis dead"}},
            "500: EngineDeadError: the engine is dead;",
        ),
        ({"detail": "broken"}, "500: broken;"),
        ("<html>oops</html>", "500: <html>oops</html>;"),
        ("", "a request for a token with 500;"),
    ],
)
def test_the_servers_own_error(serve: Callable[[Routes], LittleServer], body: object, said: str) -> None:
    answer = question(serve({"/health": (200, ""), "/v1/completions": (500, body)}).server_port)
    assert (answer.kind, answer.status) == (AnswerKind.ERROR, 500)
    assert said in answer.what


def test_an_error_is_short_and_without_secrets(serve: Callable[[Routes], LittleServer]) -> None:
    said = "key my-own-key of hf_abcdefghijklmnopqrstuvwxyz was refused " + "x" * 100_000
    server = serve({"/v1/completions": (500, {"error": {"message": said}})})
    what = question(server.server_port, api_key="my-own-key").what
    assert "my-own-key" not in what
    assert "hf_abcdef" not in what
    assert len(what) < 400


def test_a_model_that_does_not_generate_says_so_itself(serve: Callable[[Routes], LittleServer]) -> None:
    refusal = {"error": {"message": "This model does not support Completions API"}}
    routes: Routes = {"/v1/completions": (400, refusal), "/v1/chat/completions": (400, refusal)}
    answer = question(serve(routes).server_port)
    assert (answer.kind, answer.status) == (AnswerKind.ERROR, 400)
    assert "does not support Completions API" in answer.what


def test_a_redirect_is_not_followed(raw: Callable[..., int]) -> None:
    def redirect(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://me:pw@example.org/x\r\nContent-Length: 0\r\n\r\n")

    answer = question(raw(redirect))
    assert (answer.kind, answer.status, answer.said) == (
        AnswerKind.REDIRECTED,
        302,
        "Location: http://***@example.org/x",
    )


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{",
    ],
    ids=["bad chunk", "negative length", "breaks off"],
)
def test_a_body_that_breaks_off_is_unreadable(raw: Callable[..., int], reply: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(reply)

    said = question(raw(answer))
    assert (said.kind, said.status) == (AnswerKind.UNREADABLE, 200)


def test_half_a_surrogate_pair_in_a_reply_comes_no_further(serve: Callable[[Routes], LittleServer]) -> None:
    models = {"data": [{"id": "m\ud800"}]}
    completion = {"choices": [{"text": "\udc9f Paris\ud800"}], "usage": {"completion_tokens": 1}}
    answer = question(serve({"/v1/models": (200, models), "/v1/completions": (200, completion)}).server_port)
    assert answer.token is not None
    assert (answer.token.text, answer.token.model) == ("� Paris�", "m�")
    error = question(serve({"/v1/completions": (500, {"error": "\ud800"})}).server_port)
    assert error.said == "�"


def test_a_prompt_that_is_not_unicode_is_asked_all_the_same(serve: Callable[[Routes], LittleServer]) -> None:
    server = serve({"/v1/completions": (200, COMPLETION)})
    command = ServerCommand(engine="vllm", argv=(), served_name="m\udce9")
    answer = ask(
        command,
        port=server.server_port,
        prompt="caf\udce9",
        max_tokens=1,
        deadline_s=5.0,
        launched=CLOCK.monotonic(),
        clock=CLOCK,
    )
    assert answer.kind is AnswerKind.TOKEN
    assert (server.seen.payloads[0]["prompt"], server.seen.payloads[0]["model"]) == ("caf�", "m�")


def test_what_was_generated_is_kept_only_so_far(serve: Callable[[Routes], LittleServer]) -> None:
    completion = {"choices": [{"text": "z" * 100_000}]}
    server = serve({"/v1/models": (200, {"data": [{"id": "m" * 9000}]}), "/v1/completions": (200, completion)})
    answer = question(server.server_port)
    assert answer.token is not None
    assert (len(answer.token.text), len(answer.token.model)) == (20_000, 200)
    assert server.seen.payloads[0]["model"] == "m" * 9000


def test_a_server_that_listens_on_ipv6_alone_is_found() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=_accept, args=(listener, _always_a_token), daemon=True).start()
        answer = question(port)
    assert (answer.kind, answer.host) == (AnswerKind.TOKEN, "::1")


@pytest.mark.parametrize("hosts", [("127.0.0.7",), ("::1", "127.0.0.7"), ("no such host.", "127.0.0.7")])
def test_the_address_that_the_socket_is_bound_to_is_asked(hosts: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.7", 0)) as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=_accept, args=(listener, _always_a_token), daemon=True).start()
        command = ServerCommand(engine="vllm", argv=(), port=port)
        answer = ask(
            command,
            port=port,
            prompt="Hello",
            max_tokens=1,
            deadline_s=5.0,
            launched=CLOCK.monotonic(),
            clock=CLOCK,
            hosts=hosts,
        )
    assert (answer.kind, answer.host) == (AnswerKind.TOKEN, "127.0.0.7")


def _always_a_token(connection: socket.socket) -> None:
    connection.recv(65536)
    body = json.dumps({**MODELS, **COMPLETION}).encode()
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def test_sockets_that_are_bound_to_all_addresses_are_reached_by_loopback() -> None:
    assert reachable(("0.0.0.0", "10.0.0.5", "::", "10.0.0.5")) == ("127.0.0.1", "10.0.0.5", "::1")


@pytest.mark.parametrize("host", ["a\nb", "caf\udce9", "x" * 300])
def test_a_host_that_cannot_be_is_out_of_reach(host: str) -> None:
    assert exchange(host, 9, "/", deadline=Deadline(CLOCK, 5.0, "test")) is Failure.UNREACHABLE


def test_an_ipv6_address_is_named_with_brackets() -> None:
    answer = question(9, host="::1")
    assert answer.kind is AnswerKind.REFUSED
    assert "http://[::1]:9 " in answer.what


def test_a_question_in_a_thread_can_be_left_alone(raw: Callable[..., int]) -> None:
    asking = Asking(
        ServerCommand(engine="vllm", argv=()),
        port=raw(_never),
        prompt="Hello",
        max_tokens=1,
        deadline_s=30.0,
        launched=CLOCK.monotonic(),
        clock=CLOCK,
    )
    assert asking.poll() is None
    assert asking.age_s >= 0.0
    assert answered(asking).kind is AnswerKind.NO_ANSWER


def test_a_question_that_fails_inside_firstlight_says_nothing_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a \ud800 fault")

    monkeypatch.setattr(verify, "ask", fail)
    asking = Asking(
        ServerCommand(engine="vllm", argv=()),
        port=9,
        prompt="Hello",
        max_tokens=1,
        deadline_s=5.0,
        launched=CLOCK.monotonic(),
        clock=CLOCK,
    )
    answer = answered(asking)
    assert answer.kind is AnswerKind.NOT_ASKED
    assert "RuntimeError: a � fault" in answer.what
    assert finding_of(answer, pending_s=0.0) is None


VLLM_METRICS = """\
# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m {x}"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting_by_reason{engine="0"} 90.0
"""


def gauges(serve: Callable[[Routes], LittleServer], engine: str, text: str) -> int | Gap:
    server = serve({"/metrics": (200, text)})
    return requests_in_flight(ServerCommand(engine=engine, argv=()), server.server_port, 2.0)


@pytest.mark.parametrize(
    ("engine", "text", "count"),
    [
        ("vllm", VLLM_METRICS, 7),
        ("sglang", 'sglang:num_running_reqs{model_name="m"} 1.0\nsglang:num_queue_reqs{model_name="m"} 0.0\n', 1),
        ("embedded", "firstlight:num_requests_running 3\nfirstlight:num_requests_waiting 0\n", 3),
        ("generic", "llamacpp:requests_processing 1\nllamacpp:requests_deferred 1\n", 2),
        ("vllm", "vllm:num_requests_running NaN\nvllm:num_requests_waiting 0.0\n", 0),
        ("vllm", "vllm:num_requests_running 1e308\nvllm:num_requests_running -3\nvllm:num_requests_waiting 2\n", 2),
    ],
)
def test_requests_in_flight(serve: Callable[[Routes], LittleServer], engine: str, text: str, count: int) -> None:
    assert gauges(serve, engine, text) == count


@pytest.mark.parametrize(
    "text",
    [
        "",
        "process_cpu_seconds_total 1.0\n",
        "vllm:num_requests_running many\n",
        "vllm:num_requests_running 1e308\nvllm:num_requests_waiting 1e308\n",
    ],
)
def test_no_gauge_is_a_gap_and_not_zero(serve: Callable[[Routes], LittleServer], text: str) -> None:
    seen = gauges(serve, "vllm", text)
    assert isinstance(seen, Gap)
    assert seen.reason is GapReason.NOT_SUPPORTED


def test_metrics_that_never_come_are_a_gap(raw: Callable[..., int]) -> None:
    seen = requests_in_flight(ServerCommand(engine="vllm", argv=()), raw(_never), 0.2)
    assert isinstance(seen, Gap)
    assert seen.reason is GapReason.TIMED_OUT
