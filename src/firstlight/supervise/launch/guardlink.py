"""The supervisor's end of the guard: what it reports is collected, and if it dies another takes its place.

One thread of its own, so that neither a slow look nor a busy screen ever makes the server wait for its log.
"""

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.supervise.launch.ending import look
from firstlight.supervise.launch.polling import wait_for
from firstlight.supervise.launch.pump import Pump

TICK_S = 1.0
BURIAL_S = 5.0
"""How long a guard that was killed may take to be gone."""
GUARDS_MAX = 20
"""After so many guards have died, firstlight does without one."""

_GUARD_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); from firstlight.supervise.launch.guard import main; main()"
)

Message = dict[str, Any]

_GAPS = {
    "replaced": "it was killed, and another took its place; exits of that moment may lack their status",
    "stopped": "the guard was stopped by a signal, and continued by firstlight; log and exits came late",
    "gone": "it has ended before the server; firstlight itself keeps the log and ends the server",
}


def guard_gap(event: str, traceback: str = "") -> Gap:
    """What an event in the life of the guard, or its silence, means for what is known of the server."""
    detail, why = _GAPS.get(event, "it failed, or does not answer"), traceback.strip().rpartition("\n")[2]
    return Gap(what="the guard of the server", reason=GapReason.FAILED, detail=f"{detail}: {why}" if why else detail)


class GuardProcess(NamedTuple):
    """A guard that was started, and this end of the socket to it."""

    process: "subprocess.Popen[bytes]"
    control: socket.socket

    @property
    def stopped(self) -> bool:
        """Whether a signal has stopped it (state T)."""
        member = look(self.process.pid)
        return member is not None and member.state == "T"

    def go_on(self) -> None:
        """Undo the stop; no harm to one that is not stopped."""
        self.process.send_signal(signal.SIGCONT)

    def send(self, message: Message, deadline_s: float) -> None:
        """Raises: OSError."""
        self.control.settimeout(deadline_s)
        self.control.sendall(json.dumps(message).encode() + b"\n")


def start_guard(run: str, inherited: Sequence[int]) -> GuardProcess:
    """A new guard that waits for its first message.

    Raises:
        OSError: the system refused a process or a descriptor.
    """
    ours, guards = socket.socketpair()
    try:
        process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                _GUARD_PROGRAM,
                str(Path(__file__).parents[3]),
                run,
                str(guards.fileno()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[guards.fileno(), *inherited],
            start_new_session=True,
            cwd="/",
        )
    except OSError:
        ours.close()
        raise
    finally:
        guards.close()
    return GuardProcess(process, ours)


class GuardLink:
    """Talks with the guard. `facts` fills with its reports; `lost` is set once there is none any more.

    A guard that dies is followed by another, which `successor` starts; it adopts the server and is given the last
    order again. If that fails, the `pumps` are made and moved here. One that a signal has stopped is continued.
    """

    def __init__(
        self,
        first: GuardProcess,
        successor: Callable[[], tuple[GuardProcess, Message]],
        pumps: Callable[[], list[Pump]],
    ) -> None:
        self.facts: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.lost = threading.Event()
        self.stopping = threading.Event()
        self.released = threading.Event()
        self.ended: Message | None = None
        self.pumps: list[Pump] = []
        self.pids = [first.process.pid]
        self._guard = first
        self._successor = successor
        self._make_pumps = pumps
        self._order: Message | None = None
        self._started = False
        self._closing = threading.Event()
        self._changing = threading.Lock()
        self._inbox = b""
        self._thread = threading.Thread(target=self._run, name="firstlight: guard", daemon=True)
        self._thread.start()

    @property
    def guard(self) -> "subprocess.Popen[bytes]":
        """The guard of now, or the last there was."""
        return self._guard.process

    @property
    def _gone(self) -> bool:
        return self.lost.is_set() or self._closing.is_set()

    def start(self, message: Message, deadline_s: float) -> None:
        """Tell the first guard what to start. If it cannot be told, `lost` will be set."""
        with contextlib.suppress(OSError):
            self._guard.send({"start": message}, deadline_s)

    def order(self, message: Message, deadline_s: float = 5.0) -> bool:
        """Give an order to the guard, or to its successor; False if there is none, or it does not read."""
        self._order = message
        ends = time.monotonic() + deadline_s
        while not self._gone and (left := ends - time.monotonic()) > 0:
            if not self._changing.acquire(timeout=left):
                return False
            try:
                self._guard.send(message, left)
            except TimeoutError:
                return False
            except OSError:
                self.lost.wait(0.01)  # it has died; the thread is about to notice
            else:
                return True
            finally:
                self._changing.release()
        return False

    def retire(self) -> None:
        """The guard is to go, and none is to follow."""
        self._started = False
        self._guard.process.kill()

    def close(self) -> None:
        """Let go of the guard. Unless it was released, it takes that as the end of firstlight and ends the tree."""
        self._closing.set()
        with self._changing, contextlib.suppress(OSError):
            self._guard.go_on()
            self._guard.control.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=2 * TICK_S)
        self._guard.control.close()

    def _run(self) -> None:
        self._follow()
        while self._wanted and self._replace():
            self._follow()
        if not self._closing.is_set():
            self._take_over()

    @property
    def _wanted(self) -> bool:
        """Whether a guard that has gone is to have a successor."""
        over = self._closing.is_set() or self.released.is_set() or self.ended is not None
        return self._started and not over and len(self.pids) < GUARDS_MAX

    def _follow(self) -> None:
        """Collect what the guard says, until it is gone or let go of."""
        while not self._closing.is_set():
            if wait_for([self._guard.control.fileno()], TICK_S):
                if not self._receive():
                    return
            elif self._guard.stopped:
                self.facts.put({"event": "stopped"})
                self._guard.go_on()

    def _receive(self) -> bool:
        try:
            chunk = os.read(self._guard.control.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        *lines, self._inbox = (self._inbox + chunk).split(b"\n")
        for line in lines:
            self._note(json.loads(line))
        return bool(chunk)

    def _note(self, fact: Message) -> None:
        match fact["event"]:
            case "ended":
                self.ended = fact
            case "released":
                self.released.set()
            case "stopping":
                self.stopping.set()
            case "adopted":
                self.facts.put({"event": "replaced"})
            case event:
                self._started = self._started or event == "started"
                self.facts.put(fact)

    def _replace(self) -> bool:
        """A successor, told at once what to adopt, so that it knows even if firstlight dies now."""
        with self._changing:
            self._inbox = b""
            self._bury()
            try:
                guard, adopt = self._successor()
            except OSError:
                return False
            self._guard.control.close()
            self._guard = guard
            self.pids.append(guard.process.pid)
            with contextlib.suppress(OSError):  # it has died, too
                guard.send({"adopt": adopt}, BURIAL_S)
                if self._order is not None:
                    guard.send(self._order, BURIAL_S)
        return True

    def _bury(self) -> None:
        """Two guards must not read the same pipe: the bytes would change places."""
        self._guard.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.process.wait(BURIAL_S)

    def _take_over(self) -> None:
        self.pumps = self._make_pumps()
        self.lost.set()
        while not self._closing.is_set() and not all(pump.ended for pump in self.pumps):
            wait_for([pump.source for pump in self.pumps if not pump.ended], TICK_S)
            for pump in self.pumps:
                pump.move()
