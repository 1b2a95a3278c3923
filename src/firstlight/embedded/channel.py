"""Length-prefixed JSON over a Unix stream socket; the worker's end blocks, but never without a deadline.

A frame is four bytes of length, big-endian, then that many bytes of JSON. A frame of more than `MAX_FRAME` bytes is
taken for a broken peer.
"""

import select
import socket
import struct
from typing import Any

import msgspec

from firstlight.embedded.errors import EngineError, PeerGone, WaitTimedOut
from firstlight.embedded.messages import FromWorker, ToWorker

HEADER = struct.Struct(">I")
MAX_FRAME = 64 << 20
SEND_DEADLINE_S = 60.0
CHUNK = 1 << 16

from_worker: msgspec.json.Decoder[Any] = msgspec.json.Decoder(FromWorker)
to_worker: msgspec.json.Decoder[Any] = msgspec.json.Decoder(ToWorker)


def frame(message: FromWorker | ToWorker) -> bytes:
    """The bytes of one message on the wire."""
    body = msgspec.json.encode(message)
    return HEADER.pack(len(body)) + body


def body_length(header: bytes) -> int:
    """The length that a header announces. Raises EngineError if it is absurd."""
    length: int = HEADER.unpack(header)[0]
    if length > MAX_FRAME:
        raise EngineError(f"a message of {length} bytes was announced; the peer does not speak our protocol")
    return length


class Channel:
    """The worker's end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()

    def send(self, message: FromWorker) -> None:
        """Hand a message to the front. Raises PeerGone, or WaitTimedOut if the front takes nothing for a minute."""
        self._sock.settimeout(SEND_DEADLINE_S)
        try:
            self._sock.sendall(frame(message))
        except TimeoutError as error:
            raise WaitTimedOut("the front to take a message from the worker", SEND_DEADLINE_S) from error
        except OSError as error:
            raise PeerGone("the front has ended") from error

    def receive(self, wait_s: float) -> list[ToWorker]:
        """All messages that are there, waiting up to `wait_s` seconds for the first. Raises PeerGone."""
        if select.select([self._sock], [], [], wait_s)[0]:
            self._fill()
        return self._complete()

    def _fill(self) -> None:
        try:
            chunk = self._sock.recv(CHUNK)
        except OSError as error:
            raise PeerGone("the front has ended") from error
        if not chunk:
            raise PeerGone("the front has ended")
        self._buffer += chunk

    def _complete(self) -> list[ToWorker]:
        """Cut whole frames off the buffer; half a frame stays for the next time."""
        messages: list[ToWorker] = []
        start = 0
        while len(self._buffer) - start >= HEADER.size:
            body = start + HEADER.size
            end = body + body_length(bytes(self._buffer[start:body]))
            if len(self._buffer) < end:
                break
            messages.append(to_worker.decode(memoryview(self._buffer)[body:end].tobytes()))
            start = end
        del self._buffer[:start]
        return messages
