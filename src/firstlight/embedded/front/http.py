"""The HTTP server: uvicorn, with a deadline for every way in which a client can hold a connection without using it.

| what the client does | what ends it |
|---|---|
| sends no request, or its head too slowly, or a body that nobody reads | `HEAD_DEADLINE_S` |
| sends a body too slowly | its reader (`bodies`) |
| does not read the answer | `WRITE_DEADLINE_S` without progress |
| sends what is not HTTP | status 400, at once |
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from firstlight.embedded.errors import RequestRefused
from firstlight.embedded.front.replies import error_document

HEAD_DEADLINE_S = 20.0
WRITE_DEADLINE_S = 30.0
CLOSE_DEADLINE_S = 3.0
MOST_CONNECTIONS = 2048
MOST_AHEAD = 1 << 16
"""Bytes of further requests that a client may send while one is being answered."""


class Connection(H11Protocol):
    """One client. At most one of its two deadlines runs at a time for each direction."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._head_deadline: asyncio.TimerHandle | None = None
        self._write_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._refuse(RequestRefused("too many connections", status=503, kind="service_unavailable"), 503)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._head_deadline)
        _cancel(self._write_deadline)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self._answering:
            _cancel(self._head_deadline)
            self._keep_listening()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_deadline = self._in(WRITE_DEADLINE_S, self._write_deadline)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._write_deadline)

    def send_400_response(self, msg: str) -> None:
        if self._answering:  # an answer is under way, and another cannot be put into it
            self.transport.abort()
        else:
            self._refuse(RequestRefused(msg), 400)

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came for a while; what the client has not read by now, it will not."""
        self.transport.abort()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _keep_listening(self) -> None:
        """Who sends more than the request is still watched for his going away, which only reading shows."""
        if self.cycle.more_body or not self.flow.read_paused:
            return
        if len(self.conn.trailing_data[0]) > MOST_AHEAD:
            self.transport.abort()
        self.flow.resume_reading()

    def _await_head(self) -> None:
        if not self._answering and not self.transport.is_closing():
            self._head_deadline = self._in(HEAD_DEADLINE_S, self._head_deadline)

    def _in(self, seconds: float, running: asyncio.TimerHandle | None) -> asyncio.TimerHandle:
        """Drop the connection, unless it is thought better of; `running` is the deadline until now."""
        _cancel(running)
        return self.loop.call_later(seconds, self.transport.abort)

    def _refuse(self, error: RequestRefused, status: int) -> None:
        """Answer without a request, and close."""
        body = msgspec.json.encode(error_document(error))
        head = f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
        self.transport.close()


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: the front ends workers and server together."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=1,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def close(self, serving: "asyncio.Task[None]") -> None:
        """Stop listening, let answers under way end within a second, then drop them."""
        self.should_exit = True
        await asyncio.wait({serving}, timeout=CLOSE_DEADLINE_S)
        serving.cancel()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
