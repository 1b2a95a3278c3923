"""The workers as the front sees them: child processes, and the front's ends of their sockets."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from firstlight.embedded.options import ServeOptions
from firstlight.embedded.worker.board import Board
from firstlight.embedded.worker.plan import Plan
from firstlight.embedded.worker.wiring import Wiring

TERM_GRACE_S = 1.0
KILL_GRACE_S = 5.0
SHORT_SPIN = {"GOMP_SPINCOUNT": "2000"}
"""torch's threads spin for some microseconds while they wait for each other, and then sleep. By default they spin for
milliseconds, and on cores that others use too they then wait most of the time for a thread that has been put off.
The user's environment goes first."""
PROGRAM = (sys.executable, "-m", "firstlight.embedded.worker")


class WorkerProcess:
    """One rank. Started at once, so that it imports torch while the front imports its HTTP server."""

    def __init__(self, plan: Plan, wiring: Wiring, rank: int, program: Sequence[str]) -> None:
        self.rank = rank
        self.socket, theirs = socket.socketpair()
        command = [*program, *wiring.arguments(rank), "--control-fd", str(theirs.fileno()), *plan.words()]
        self._process = _spawn(command, (theirs.fileno(), *wiring.descriptors(rank)))
        theirs.close()
        self.pid = self._process.pid
        self.name = f"worker rank={rank} pid={self.pid}"

    def wait(self, deadline_s: float) -> str:
        """How the process ended, in words; empty if it has not by the deadline."""
        try:
            self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            return ""
        return self.ended

    @property
    def ended(self) -> str:
        """How the process ended, in words; empty if it lives."""
        status = self._process.poll()
        if status is None:
            return ""
        return f"exited with code {status}" if status >= 0 else f"was killed by {_signal_name(-status)}"

    @property
    def killed(self) -> bool:
        """Whether a signal ended it: nothing that the process did by itself, so never a consequence."""
        return (self._process.poll() or 0) < 0

    def ask_to_end(self) -> None:
        self._process.terminate()

    def insist(self, deadline_s: float) -> None:
        """A stopped process cannot answer SIGTERM, but it cannot survive SIGKILL."""
        if not self.wait(deadline_s):
            self._process.kill()
            self.wait(KILL_GRACE_S)


class Workers:
    """All ranks of one server."""

    def __init__(self, options: ServeOptions, program: Sequence[str] = PROGRAM) -> None:
        wiring = Wiring(options.tp)
        self.board = Board(wiring.board_fd)
        self.processes: list[WorkerProcess] = []
        try:
            for rank in range(options.tp):
                self.processes.append(WorkerProcess(plan_of(options), wiring, rank, program))
        except BaseException:
            self.end()
            raise
        wiring.let_go()

    def end(self) -> None:
        """Ask all, then insist: what they have together to end in order is one second.

        The front speaks first: what the ranks then say of each other's end is a consequence.
        """
        self.board.claim(self.board.ranks)
        for process in self.processes:
            process.ask_to_end()
        until = time.monotonic() + TERM_GRACE_S
        for process in self.processes:
            process.insist(max(0.0, until - time.monotonic()))


def plan_of(options: ServeOptions) -> Plan:
    """What every rank is asked to run."""
    return Plan(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Plan)})


def _spawn(command: list[str], fds: tuple[int, ...]) -> "subprocess.Popen[bytes]":
    # Ctrl-C in a terminal reaches every process of the group; the front alone decides how the worker ends.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=fds, env=SHORT_SPIN | os.environ)
    finally:
        signal.signal(signal.SIGINT, before)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names of their own
        return f"signal {number}"
