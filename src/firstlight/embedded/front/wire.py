"""One worker's socket in the front's event loop: frames in, messages out, nothing in between that waits."""

import asyncio
from collections.abc import Callable

import msgspec

from firstlight.embedded.channel import HEADER, body_length, frame, from_worker
from firstlight.embedded.errors import EngineError
from firstlight.embedded.messages import FromWorker, ToWorker


class Wire(asyncio.Protocol):
    """Hands each message to `take` as it comes. `closed` is done once the worker's end is gone."""

    def __init__(self, take: Callable[[FromWorker], None]) -> None:
        self._take = take
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Ends with an EngineError if what came was no message of ours."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            self._cut()
        except (EngineError, msgspec.DecodeError) as error:
            self._close(EngineError(f"a worker sent what is no message of ours: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._close(None)

    def send(self, message: ToWorker) -> None:
        """Never waits: what the worker has not taken stays in our memory, bounded by the places in the queue."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _close(self, error: EngineError | None) -> None:
        if not self.closed.done():
            if error is None:
                self.closed.set_result(None)
            else:
                self.closed.set_exception(error)
        self.close()

    def _cut(self) -> None:
        """Whole frames off the buffer; half a frame stays for the next time."""
        start, size = 0, len(self._buffer)
        with memoryview(self._buffer) as view:
            while size - start >= HEADER.size:
                body = start + HEADER.size
                end = body + body_length(bytes(view[start:body]))
                if size < end:
                    break
                self._take(from_worker.decode(view[body:end]))
                start = end
        del self._buffer[:start]
