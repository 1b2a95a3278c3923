"""A very small server that speaks enough of the OpenAI API to be asked for one token."""

import json
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from firstlight.testing.stage import say

Generate = Callable[[str], str]


def one_token(prompt: str) -> str:
    """The answer of a healthy server."""
    return " light"


class TinyServer(ThreadingHTTPServer):
    """GET /health, /v1/models, /metrics; POST /v1/completions and /v1/chat/completions, answered by `generate`.

    `generate` runs in the request's thread and may block for as long as it likes. `health` is the status of
    /health; while it is not 200, nothing is generated. With a `key`, /v1 wants `Authorization: Bearer <key>`.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True

    def __init__(
        self,
        port: int,
        generate: Generate = one_token,
        *,
        model: str = "tiny",
        health: int = 200,
        key: str = "",
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.generate = generate
        self.model = model
        self.health = health
        self.key = key
        self.running = 0
        self.counting = threading.Lock()

    def server_bind(self) -> None:
        """Bind without asking the resolver for this machine's name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])


def serve(server: TinyServer) -> None:
    """Say where it listens, and serve until the process ends."""
    say(f"Listening on http://127.0.0.1:{server.server_port}")
    server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    server: TinyServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(self.server.health, {})
        elif not self._allowed():
            self._fail(401, "Unauthorized")
        elif self.path == "/v1/models":
            self._answer(200, {"object": "list", "data": [{"id": self.server.model, "object": "model"}]})
        elif self.path == "/metrics":
            self._send(200, "text/plain; version=0.0.4", self._metrics().encode())
        else:
            self._fail(404, "Not Found")

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        chat = self.path == "/v1/chat/completions"
        if not chat and self.path != "/v1/completions":
            self._fail(404, "Not Found")
        elif not self._allowed():
            self._fail(401, "Unauthorized")
        elif self.server.health != 200:
            self._fail(503, "the model is not loaded yet")
        elif request.get("model") != self.server.model:
            self._fail(404, f"The model `{request.get('model')}` does not exist.")
        else:
            prompt = str(request["messages"] if chat else request["prompt"])
            self._answer(200, self._completion(self._generated(prompt), chat))

    def _generated(self, prompt: str) -> str:
        server = self.server
        with server.counting:
            server.running += 1
        try:
            return server.generate(prompt)
        finally:
            with server.counting:
                server.running -= 1

    def _completion(self, text: str, chat: bool) -> dict[str, object]:
        said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        return {
            "id": "1",
            "object": "chat.completion" if chat else "text_completion",
            "model": self.server.model,
            "choices": [{"index": 0, "finish_reason": "length", **said}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }

    def _metrics(self) -> str:
        """The gauge of running requests, under the name that vLLM gives it."""
        return f'vllm:num_requests_running{{engine="0",model_name="{self.server.model}"}} {self.server.running}.0\n'

    def _allowed(self) -> bool:
        key = self.server.key
        return not key or not self.path.startswith("/v1") or self.headers.get("Authorization") == f"Bearer {key}"

    def _fail(self, status: int, message: str) -> None:
        self._answer(status, {"error": {"message": message, "type": "error", "code": status}})

    def _answer(self, status: int, body: dict[str, object]) -> None:
        self._send(status, "application/json", json.dumps(body).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - the name of the base class
        say(f'{self.client_address[0]} - "{self.requestline}" {values[1] if len(values) > 1 else ""}')
