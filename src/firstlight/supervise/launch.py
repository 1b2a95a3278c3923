"""Starts a server under a guard, and owns it from then on: its reports, its log, its end."""

import errno
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
from firstlight.errors import CommandNotFound, LaunchFailed
from firstlight.supervise.capture import LogFollower
from firstlight.supervise.ending import INSIST_S, Ended, Ending, Member, descendants, everybody
from firstlight.supervise.exits import exit_of
from firstlight.supervise.guard import DRAIN_S, EXEC_S, START_S, STREAMS, become_subreaper
from firstlight.supervise.guardlink import GuardLink
from firstlight.supervise.pump import Channel, Pump, widen

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


class _Stream(NamedTuple):
    channel: Channel
    write_end: int
    path: Path


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
    streams = {name: _open_stream(name, folder, gaps) for name in STREAMS}
    control, guards_end = socket.socketpair()
    try:
        guard = _start_guard(run, guards_end, streams)
    except OSError as error:
        control.close()
        _close_streams(streams)
        raise LaunchFailed(f"no process could be started: {error.strerror}", _WAYS_OUT["fork"]) from error
    finally:
        guards_end.close()
        for stream in streams.values():
            os.close(stream.write_end)
    link = GuardLink(control, lambda: [Pump(name, stream.channel) for name, stream in streams.items()])
    server = Server(run, guard, link, streams, clock=clock, gaps=gaps)
    env = {**(os.environ if environ is None else environ), **dict(command.env), RUN_VARIABLE: run}
    message = {
        "argv": list(command.argv),
        "env": env,
        "cwd": str(cwd or Path.cwd()),
        "folder": str(folder.absolute()),
        "grace_s": grace_s,
        **{name: {"channel": stream.channel, "write_end": stream.write_end} for name, stream in streams.items()},
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
        streams: dict[str, _Stream],
        *,
        clock: Clock,
        gaps: list[Gap],
    ) -> None:
        self.root = ProcessId(pid=0, started=0)
        self.guard = guard.pid
        self.stdout = streams["stdout"].path
        self.stderr = streams["stderr"].path
        self.gaps = gaps
        self._run = run
        self._guard = guard
        self._link = link
        self._streams = streams
        self._clock = clock
        self._closed = False
        self._followers = _followers(streams, clock)

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
            else:
                self._note(fact)
        self._note_lost_guard()
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
        _close_streams(self._streams)

    def _start(self, message: dict[str, object]) -> None:
        deadline = Deadline(self._clock, STARTED_S, "the guard's word that the server has started")
        self._link.say({"start": message}, deadline_s=START_S)
        while not deadline.passed:
            if self._link.facts.empty():
                if self._link.lost.is_set():
                    raise LaunchFailed("the guard of the server ended at once", _WAYS_OUT["guard"])
                self._clock.sleep(0.002)
                continue
            fact = self._link.facts.get_nowait()
            if fact["event"] == "started":
                self.root = _id(fact)
                return
            _raise_failure(fact, message)
        raise LaunchFailed(f"waited {STARTED_S:.0f} s for {deadline.name}, in vain", _WAYS_OUT["guard"])

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
        self._note_lost_guard()
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
            self._note({"event": "guard"})

    def _note_lost_guard(self) -> None:
        if self.guard_lost and not self._closed:
            self._note({"event": "guard"})

    def _note(self, fact: dict[str, Any]) -> None:
        gap = _gap(fact)
        if gap not in self.gaps:
            self.gaps.append(gap)


def _open_stream(name: str, folder: Path, gaps: list[Gap]) -> _Stream:
    path = folder / f"{name}.log"
    read_end, write_end = os.pipe()
    widen(write_end)
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as error:
        log = -1
        gaps.append(_gap({"event": "lost", "stream": name, "errno": error.errno, "bytes": 0}))
    return _Stream(Channel(read_end, log, _spare(name)), write_end, path)


def _spare(name: str) -> int:
    try:
        return os.memfd_create(f"firstlight {name}", os.MFD_CLOEXEC)
    except OSError:
        return -1


def _close_streams(streams: dict[str, _Stream]) -> None:
    for stream in streams.values():
        for fd in stream.channel:
            if fd >= 0:
                os.close(fd)


def _start_guard(run: str, control: socket.socket, streams: dict[str, _Stream]) -> "subprocess.Popen[bytes]":
    root = str(Path(__file__).parents[2])
    inherited = [control.fileno()]
    for stream in streams.values():
        inherited += [fd for fd in (*stream.channel, stream.write_end) if fd >= 0]
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD_PROGRAM, root, run, str(control.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=inherited,
        start_new_session=True,
        cwd="/",
    )


def _followers(streams: dict[str, _Stream], clock: Clock) -> list[LogFollower]:
    followers = [LogFollower(stream.path, name, clock) for name, stream in streams.items() if stream.channel.log >= 0]
    for name, stream in streams.items():
        if stream.channel.spare >= 0:
            followers.append(LogFollower(Path(f"/proc/self/fd/{stream.channel.spare}"), name, clock))
    return followers


def _id(fact: dict[str, Any]) -> ProcessId:
    return ProcessId(pid=fact["pid"], started=fact["started"])


def _collect(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _gap(fact: dict[str, Any]) -> Gap:
    """What a report of the guard means for the record."""
    if fact["event"] == "lost":
        return Gap(
            what=f"the whole of {fact['stream']}.log",
            reason=GapReason.FAILED,
            detail=f"the file could not be written: {os.strerror(fact['errno'])}; the first 16 MiB that it missed "
            "are kept in memory and followed there, but not after the end of firstlight",
        )
    return Gap(
        what="the guard of the server",
        reason=GapReason.FAILED,
        detail="it has ended before the server; firstlight itself keeps the log and ends the server now. "
        + fact.get("traceback", "").strip().rpartition("\n")[2],
    )


_WAYS_OUT = {
    "fork": "Too many processes or too little memory: compare `ulimit -u` and the pids limit of the container.",
    "guard": f"Does `{sys.executable} -I -S -c 'import json, ctypes'` work?",
}


def _raise_failure(fact: dict[str, Any], message: dict[str, Any]) -> None:
    """Say exactly why the command could not be run."""
    if fact["event"] != "failed":
        raise LaunchFailed(f"the guard failed: {fact.get('traceback', fact['event'])}", _WAYS_OUT["guard"])
    program, number = message["argv"][0], fact["errno"]
    if fact["where"] == "fork":
        raise LaunchFailed(f"no process could be started: {os.strerror(number)}", _WAYS_OUT["fork"])
    if fact["where"] == "chdir":
        raise CommandNotFound(f"cannot run in {message['cwd']}: {os.strerror(number)}", "Start in another folder.")
    if number == errno.ENOENT and "/" in program and Path(message["cwd"], program).exists():
        what = "it is there, but the interpreter that its first line names is not"
    else:
        what = {
            errno.ENOENT: "there is no such command",
            errno.EACCES: "it may not be executed",
            errno.ENOEXEC: "it is not a program, nor a script whose first line names one",
        }.get(number, os.strerror(number))
    raise CommandNotFound(
        f"cannot run {program!r}: {what}", "Check the spelling, the PATH, the virtual environment and `chmod +x`."
    )
