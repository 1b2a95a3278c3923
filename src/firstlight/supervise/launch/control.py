"""The guard's end of the socket to firstlight. Part of the guard: standard library only."""

import json
import socket
import time
from typing import Any

from firstlight.supervise.launch.polling import wait_for

START_S = 10.0
"""How long the guard waits for the whole of the start message."""
OUTBOX_BYTES = 4 << 20
"""Reports kept for a firstlight that does not read them; more are dropped (exits.jsonl has them all)."""


class Control:
    """The guard's end of the control socket: lines in, lines out, never blocking after the start."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self.closed = False
        self._inbox = b""
        self._outbox = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def wants_to_write(self) -> bool:
        return bool(self._outbox) and not self.closed

    def first(self) -> dict[str, Any] | None:
        """The first message, None if firstlight vanished, or fell silent, before it was whole."""
        ends = time.monotonic() + START_S
        while b"\n" not in self._inbox and not self.closed:
            left = ends - time.monotonic()
            if left <= 0 or not wait_for([self.fileno()], left):
                return None
            self._receive()
        line, newline, self._inbox = self._inbox.partition(b"\n")
        message: dict[str, Any] | None = json.loads(line) if newline else None
        return message

    def read(self) -> list[dict[str, Any]]:
        """Whole messages that have arrived."""
        self._receive()
        *lines, self._inbox = self._inbox.split(b"\n")
        return [json.loads(line) for line in lines]

    def _receive(self) -> None:
        try:
            while chunk := self._socket.recv(1 << 16):
                self._inbox += chunk
                if b"\n" in chunk:
                    return
            self.closed = True
        except BlockingIOError:
            return
        except OSError:
            self.closed = True

    def say(self, event: str, **facts: object) -> None:
        """Report to firstlight, now or when it reads again."""
        if not self.closed and len(self._outbox) < OUTBOX_BYTES:
            self._outbox += json.dumps({"event": event, **facts}).encode() + b"\n"
            self.flush()

    def flush(self) -> None:
        """Send on what firstlight had no room for before."""
        if not self.wants_to_write:
            return
        try:
            self._outbox = self._outbox[self._socket.send(self._outbox) :]
        except BlockingIOError:
            return
        except OSError:
            self.closed = True
