"""A hub on loopback with one model, which a client's cache holds already: it answers what a client asks before."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REVISION = "0" * 40


@contextmanager
def hub(name: str, model: Path, cache: Path) -> Iterator[dict[str, str]]:
    """Serve the model of that folder under that name, and lay it into a client's cache; gives the variables that lead
    there."""
    _lay(name, model, cache)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(name, sorted(path.name for path in model.iterdir())))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HUB_CACHE": str(cache)}
    finally:
        server.shutdown()
        server.server_close()


def _lay(name: str, model: Path, cache: Path) -> None:
    folder = cache / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    for path in model.iterdir():
        (snapshot / path.name).symlink_to(path)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(REVISION)


def _handler(name: str, files: list[str]) -> type[BaseHTTPRequestHandler]:
    tree = [{"type": "file", "path": file, "size": 1, "oid": REVISION} for file in files]
    siblings = [{"rfilename": file} for file in files]
    about = {"id": name, "modelId": name, "sha": REVISION, "private": False, "tags": [], "siblings": siblings}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if not path.startswith("/api/models/"):
                return self.do_HEAD()
            return self._answer(200, json.dumps(tree if "/tree/" in path else about).encode())

        def do_HEAD(self) -> None:
            known = self.path.partition("?")[0].rpartition("/")[2] in files
            self._answer(
                200 if known else 404, b"", **({"ETag": '"1"'} if known else {"X-Error-Code": "EntryNotFound"})
            )

        def _answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), "X-Repo-Commit": REVISION, **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named so where it is overridden
            """What is asked interests nobody."""

    return Handler
