"""One worker's socket in the front's event loop: frames in, messages out, nothing in between that waits."""

import asyncio
from collections.abc import Callable

import msgspec

from firstlight.embedded.channel import HEADER, body_length, frame, from_worker
from firstlight.embedded.errors import EngineError
from firstlight.embedded.messages import FromWorker, ToWorker

READ_AT_ONCE = 1 << 16


class Wire(asyncio.BufferedProtocol):
    """Hands each message to `take` as it comes. `closed` is done once the worker's end is gone.

    What comes is read into memory that is there: asyncio's other way asks for 256 KiB anew for every few bytes.
    """

    def __init__(self, take: Callable[[FromWorker], None]) -> None:
        self._take = take
        self._fresh = bytearray(READ_AT_ONCE)
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Says what was wrong, if it was closed because what came was no message of ours."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._fresh

    def buffer_updated(self, nbytes: int) -> None:
        with memoryview(self._fresh) as fresh:
            self._buffer += fresh[:nbytes]
        try:
            self._cut()
        except (EngineError, msgspec.DecodeError) as error:
            self._close(f"it sent what is no message of ours: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._close("")

    def send(self, message: ToWorker) -> None:
        """Never waits: what the worker has not taken stays in our memory, bounded by the places in the queue."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _close(self, why: str) -> None:
        if not self.closed.done():
            self.closed.set_result(why)
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
