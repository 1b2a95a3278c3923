"""A server of eight processes that answers one token and is otherwise nearly idle: something to watch.

Seven workers compute for a moment every tenth of a second, as the ranks of a served model do between requests.
"""

import json
import multiprocessing
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORKERS = 7


class Answers(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": "eight", "object": "model"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        choice = {"index": 0, "text": " light", "finish_reason": "length"}
        message = {"message": {"role": "assistant", "content": " light"}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self.answer({"id": "1", "model": "eight", "choices": [{**choice, **message}], "usage": usage})

    def answer(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def work(parent: int) -> None:
    while os.getppid() == parent:
        sum(range(20_000))
        time.sleep(0.1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for _ in range(WORKERS):
        multiprocessing.Process(target=work, args=(os.getpid(),), daemon=True).start()
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answers)
    print(f"listening on port {server.server_port}", flush=True)
    server.serve_forever()
