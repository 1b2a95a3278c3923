"""Healthy and slow: downloads its weights to a file over HTTP at 50 kB/s, in silence; then it serves.

A child process is the far end: a web server on the loopback that takes its time.
"""

import http.client
import tempfile
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, say, start

BYTES_A_SECOND = 50_000
CHUNKS_A_SECOND = 10
CHUNK = bytes(BYTES_A_SECOND // CHUNKS_A_SECOND)


class SlowFile(BaseHTTPRequestHandler):
    """GET /SECONDS sends a file that takes that long."""

    def do_GET(self) -> None:
        chunks = int(self.path[1:]) * CHUNKS_A_SECOND
        self.send_response(200)
        self.send_header("Content-Length", str(chunks * len(CHUNK)))
        self.end_headers()
        for _ in range(chunks):
            self.wfile.write(CHUNK)
            time.sleep(1 / CHUNKS_A_SECOND)

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - the name of the base class
        pass


def download(port: int, seconds: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", f"/{seconds}")
    response = connection.getresponse()
    with tempfile.TemporaryFile(buffering=0) as file:
        while chunk := response.read(len(CHUNK)):
            file.write(chunk)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seconds", type=int, default=40)
    given = parser.parse_args()
    hub = HTTPServer(("127.0.0.1", 0), SlowFile)
    far_end = start("hub", hub.serve_forever)
    hub.server_close()
    say("Downloading model.safetensors")
    download(hub.server_port, given.seconds)
    far_end.terminate()
    far_end.join()
    serve(TinyServer(given.port))


if __name__ == "__main__":
    main()
