"""The supervisor's end of the guard: what it reports is collected, and if it dies its work on the log goes on.

One thread of its own, so that neither a slow look nor a busy screen ever makes the server wait for its log.
"""

import contextlib
import json
import os
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any

from firstlight.supervise.polling import wait_for
from firstlight.supervise.pump import Pump

TICK_S = 1.0


class GuardLink:
    """Talks with the guard over `control`. `facts` fills with its reports; `lost` is set once it is gone.

    `pumps` make the pumps that take over then; they are made only when the guard can no longer write.
    """

    def __init__(self, control: socket.socket, pumps: Callable[[], list[Pump]]) -> None:
        self.facts: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.lost = threading.Event()
        self.ended: dict[str, Any] | None = None
        self.released = threading.Event()
        self.pumps: list[Pump] = []
        self._control = control
        self._make_pumps = pumps
        self._closing = threading.Event()
        self._inbox = b""
        self._thread = threading.Thread(target=self._run, name="firstlight: guard", daemon=True)
        self._thread.start()

    def say(self, message: dict[str, object], deadline_s: float = 5.0) -> bool:
        """Send a message; False if the guard is gone or does not read."""
        try:
            self._control.settimeout(deadline_s)
            self._control.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Let go of the guard. Unless it was released, it takes that as the end of firstlight and ends the tree."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=2 * TICK_S)
        self._control.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            if not wait_for([self._control.fileno()], TICK_S):
                continue
            if not self._receive():
                break
        if not self._closing.is_set():
            self._take_over()

    def _receive(self) -> bool:
        try:
            chunk = os.read(self._control.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        *lines, self._inbox = (self._inbox + chunk).split(b"\n")
        for line in lines:
            self._note(json.loads(line))
        return bool(chunk)

    def _note(self, fact: dict[str, Any]) -> None:
        if fact["event"] == "ended":
            self.ended = fact
        elif fact["event"] == "released":
            self.released.set()
        else:
            self.facts.put(fact)

    def _take_over(self) -> None:
        self.pumps = self._make_pumps()
        self.lost.set()
        while not self._closing.is_set() and not all(pump.ended for pump in self.pumps):
            wait_for([pump.source for pump in self.pumps if not pump.ended], TICK_S)
            for pump in self.pumps:
                pump.move()
