"""Starts a server under a guard, and owns it from then on: its reports, its log, its end."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core.gap import Gap
from firstlight.core.process import Exit, ProcessId
from firstlight.core.server import ServerCommand
from firstlight.core.vocabulary import GapReason
from firstlight.supervise.capture import LogFollower
from firstlight.supervise.control import START_S
from firstlight.supervise.ending import INSIST_S, Ended, Ending, Member, descendants, everybody
from firstlight.supervise.exits import exit_of
from firstlight.supervise.guard import DRAIN_S, STREAMS, become_subreaper
from firstlight.supervise.guardlink import GuardLink
from firstlight.supervise.pump import Pump
from firstlight.supervise.refusals import no_guard, no_process, refusal
from firstlight.supervise.spawn import EXEC_S
from firstlight.supervise.streams import Stream, log_gap, open_stream

GRACE_S = 10.0
"""How long a server is given to end by itself once it was asked to."""
STARTED_S = START_S + EXEC_S
TICK_S = 0.05
RUN_VARIABLE = "FIRSTLIGHT_RUN"
"""Set in the server's environment, and inherited by all of its processes: by it they are known again as ours."""

_GUARD_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from firstlight.supervise.guard import main; main()"


class StopResult(NamedTuple):
    """How a server was ended: how many were asked, how many had to be killed, and who is left even so."""

    asked: int
    killed: int
    left: tuple[str, ...]


def launch(
    command: ServerCommand,
    folder: Path,
    clock: Clock,
    *,
    run: str = "",
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    grace_s: float = GRACE_S,
) -> "Server":
    """Start the command in a session of its own, with its log in `folder` (stdout.log, stderr.log, exits.jsonl).

    `environ` is the base environment, that of this process by default; the command's own variables go on top.
    `grace_s` is what the guard allows the server when firstlight vanishes.

    Raises:
        CommandNotFound: the program is not there, or may not be run.
        LaunchFailed: the system refused a process, or the guard could not be started.
    """
    run = run or folder.name
    become_subreaper()
    gaps: list[Gap] = []
    streams = [open_stream(name, folder, gaps) for name in STREAMS]
    control, guards_end = socket.socketpair()
    try:
        guard = _start_guard(run, guards_end, streams)
    except OSError as error:
        control.close()
        for stream in streams:
            stream.close()
        raise no_process(error.errno or 0) from error
    finally:
        guards_end.close()
        for stream in streams:
            os.close(stream.write_end)
    link = GuardLink(control, lambda: [Pump(stream.name, stream.channel) for stream in streams])
    server = Server(run, guard, link, streams, clock=clock, gaps=gaps)
    env = {**(os.environ if environ is None else environ), **dict(command.env), RUN_VARIABLE: run}
    message = {
        "argv": list(command.argv),
        "env": env,
        "cwd": str(cwd or Path.cwd()),
        "folder": str(folder.absolute()),
        "grace_s": grace_s,
        **{stream.name: {"channel": stream.channel, "write_end": stream.write_end} for stream in streams},
    }
    try:
        server._start(message)
    except BaseException:
        server.close()
        raise
    return server


class Server:
    """A server that firstlight started. To be ended with `stop`, or let go with `release`.

    If firstlight dies without either, the guard ends the server. If the guard dies, this object goes on keeping
    the log, and `stop` ends the tree itself.
    """

    def __init__(
        self,
        run: str,
        guard: "subprocess.Popen[bytes]",
        link: GuardLink,
        streams: list[Stream],
        *,
        clock: Clock,
        gaps: list[Gap],
    ) -> None:
        self.root = ProcessId(pid=0, started=0)
        self.guard = guard.pid
        self.stdout, self.stderr = (stream.path for stream in streams)
        self.gaps = gaps
        self._run = run
        self._guard = guard
        self._link = link
        self._streams = streams
        self._clock = clock
        self._closed = False
        self._followers = [follower for stream in streams for follower in stream.followers(clock)]

    @property
    def reapers(self) -> tuple[int, ...]:
        """Who inherits the orphans of the tree: the guard."""
        return (self.guard,)

    @property
    def guard_lost(self) -> bool:
        """True once the guard has died; this process keeps the log then."""
        return self._link.lost.is_set() and not self._link.released.is_set()

    def followers(self) -> list[LogFollower]:
        """The logs, and behind them what could only be kept in memory."""
        return self._followers

    def poll(self) -> list[Exit]:
        """Exits that the guard has reported since the last call; never blocks. What went wrong is in `gaps`."""
        exits = []
        while not self._link.facts.empty():
            fact = self._link.facts.get_nowait()
            if fact["event"] == "exit":
                exits.append(exit_of(_id(fact), fact["name"], fact["status"], fact["at"]))
            elif fact["event"] == "lost":
                self._note(log_gap(fact["stream"], fact["errno"]))
            else:
                self._note(_guard_gap(fact.get("traceback", "")))
        if self.guard_lost and not self._closed:
            self._note(_guard_gap())
        return exits

    def reported_exits(self) -> list[Exit]:
        """The same as `poll`, by the name that a watched target gives it."""
        return self.poll()

    def stop(self, grace_s: float = GRACE_S, while_waiting: Callable[[], None] | None = None) -> StopResult:
        """End the server: ask, wait up to `grace_s`, insist, verify. Then let go of the guard and of the log.

        `while_waiting` is called some twenty times a second meanwhile; if it raises, the guard goes on by itself.
        """
        ended = self._stop_by_guard(grace_s, while_waiting) or self._stop_by_hand(grace_s, while_waiting)
        self.close()
        return StopResult(*ended)

    def hurry(self) -> None:
        """While `stop` waits: no more grace."""
        self._link.say({"do": "stop", "grace_s": 0})

    def release(self, deadline_s: float = 5.0) -> bool:
        """Leave the server running and the guard as the keeper of its log; False if the guard could not be told."""
        if not self._link.say({"do": "release"}):
            return False
        return self._link.released.wait(deadline_s)

    def close(self) -> None:
        """Let go of the guard and of the files. Without `release` or `stop` before, the guard ends the server."""
        if self._closed:
            return
        self._closed = True
        self._link.close()
        if not self._link.released.is_set():
            self._await_guard(GRACE_S)
        for pump in self._link.pumps:
            pump.move()
        for stream in self._streams:
            stream.close()

    def _start(self, message: dict[str, object]) -> None:
        deadline = Deadline(self._clock, STARTED_S, "the guard's word that the server has started")
        self._link.say({"start": message}, deadline_s=START_S)
        while not deadline.passed:
            if self._link.facts.empty():
                if self._link.lost.is_set():
                    raise no_guard("the guard of the server ended at once")
                self._clock.sleep(0.002)
                continue
            fact = self._link.facts.get_nowait()
            if fact["event"] == "started":
                self.root = _id(fact)
                return
            raise refusal(fact, message)
        raise no_guard(f"waited {STARTED_S:.0f} s for {deadline.name}, in vain")

    def _stop_by_guard(self, grace_s: float, while_waiting: Callable[[], None] | None) -> Ended | None:
        if self._link.lost.is_set() or not self._link.say({"do": "stop", "grace_s": grace_s}):
            return None
        deadline = Deadline(self._clock, grace_s + INSIST_S + DRAIN_S + 5, "the guard's end of the server")
        while self._link.ended is None and not self._link.lost.is_set() and not deadline.passed:
            if while_waiting:
                while_waiting()
            self._clock.sleep(TICK_S)
        ended = self._link.ended
        return Ended(ended["asked"], ended["killed"], tuple(ended["left"])) if ended else None

    def _stop_by_hand(self, grace_s: float, while_waiting: Callable[[], None] | None) -> Ended:
        """The guard is gone, or does not answer (then it goes first, so that its orphans come to this process)."""
        self._note(_guard_gap())
        self._guard.kill()
        self._await_guard(2.0)
        ending = Ending(self._ours, grace_s, self._clock.monotonic())
        while (ended := ending.step(self._clock.monotonic())) is None:
            if while_waiting:
                while_waiting()
            self._clock.sleep(TICK_S)
        return ended

    def _ours(self) -> list[Member]:
        """The server's processes among the descendants of this one, which has children of its own besides.

        They are known by the root's identity, by the root's session, or by the run's mark in their environment.
        """
        world = everybody()
        mine = [member for member in world.values() if member.ppid == os.getpid()]
        tops = [member for member in mine if member.pid != self.guard and self._is_ours(member)]
        for member in tops:
            if not member.alive:
                _collect(member.pid)
        return tops + descendants([self.guard, *(member.pid for member in tops)], world)

    def _is_ours(self, member: Member) -> bool:
        if member.session == self.root.pid:
            return True
        try:
            return procfs.environ(member.pid).get(RUN_VARIABLE) == self._run
        except OSError:
            return False

    def _await_guard(self, seconds: float) -> None:
        try:
            self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            self._note(_guard_gap())

    def _note(self, gap: Gap) -> None:
        if gap not in self.gaps:
            self.gaps.append(gap)


def _start_guard(run: str, control: socket.socket, streams: list[Stream]) -> "subprocess.Popen[bytes]":
    root = str(Path(__file__).parents[2])
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD_PROGRAM, root, run, str(control.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[control.fileno(), *(fd for stream in streams for fd in stream.fds)],
        start_new_session=True,
        cwd="/",
    )


def _id(fact: dict[str, Any]) -> ProcessId:
    return ProcessId(pid=fact["pid"], started=fact["started"])


def _collect(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _guard_gap(traceback: str = "") -> Gap:
    return Gap(
        what="the guard of the server",
        reason=GapReason.FAILED,
        detail="it ended before the server, or does not answer; firstlight itself keeps the log and ends the server. "
        + traceback.strip().rpartition("\n")[2],
    )
