"""The worker as the front sees it: a child process and the front's end of a socket."""

import os
import signal
import socket
import subprocess
import sys

from firstlight.embedded.options import ServeOptions

TERM_GRACE_S = 1.0
KILL_GRACE_S = 5.0
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}
"""The model's threads sleep while they wait for each other. By default they spin, and on cores that others use too
they then wait most of the time for a thread that has been put off; the user's environment goes first."""


class WorkerProcess:
    """One rank. Started at once, so that it imports torch while the front imports its HTTP server."""

    def __init__(self, options: ServeOptions, rank: int) -> None:
        self.rank = rank
        self.socket, theirs = socket.socketpair()
        self._process = self._spawn(options, theirs)
        theirs.close()
        self.pid = self._process.pid
        self.name = f"worker rank={rank} pid={self.pid}"

    def _spawn(self, options: ServeOptions, theirs: socket.socket) -> "subprocess.Popen[bytes]":
        fd = theirs.fileno()
        command = [sys.executable, "-m", "firstlight.embedded.worker", "--rank", str(self.rank)]
        command += ["--model", str(options.model), "--control-fd", str(fd), "--dtype", options.dtype]
        command += ["--max-num-seqs", str(options.max_num_seqs), "--max-model-len", str(options.max_model_len)]
        command += ["--threads", str(options.threads)]
        # Ctrl-C in a terminal reaches every process of the group; the front alone decides how the worker ends.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(fd,), env=PASSIVE | os.environ)
        finally:
            signal.signal(signal.SIGINT, before)

    def wait(self, deadline_s: float) -> str:
        """How the process ended, in words; empty if it has not by the deadline."""
        try:
            status = self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            return ""
        return f"exited with code {status}" if status >= 0 else f"was killed by {_signal_name(-status)}"

    def end(self) -> None:
        """Ask, then insist. A stopped process cannot answer SIGTERM, but it cannot survive SIGKILL."""
        self._process.terminate()
        if not self.wait(TERM_GRACE_S):
            self._process.kill()
            self.wait(KILL_GRACE_S)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names of their own
        return f"signal {number}"
