"""The guard: a small process between firstlight and the server, which outlives both and leaves nothing behind.

It starts the server, keeps its log, reaps every orphan of its tree and reports how each ended. Should firstlight
vanish, even by SIGKILL, the guard ends the whole tree; should firstlight say "release", it stays as the keeper of
the log until the server is gone. SIGTERM to the guard ends the tree, too.

The tree cannot escape it: the guard is a child subreaper (prctl(2)), so a process that forks twice or calls setsid
becomes its child at last. It leads a session of its own, where no Ctrl-C of a terminal arrives. If the guard is
killed, firstlight does its work (see `launch`); only the death of both at once leaves a server behind.

Standard library only, started with `python -I -S`: it costs about 11 MB. Talks with `launch` in lines of JSON over
a socket that both inherit; the command and its environment come that way, because an argument list is public and
may hold secrets.

    firstlight says   {"start": {...}} once, then {"do": "stop", "grace_s": 10} or {"do": "release"}
    the guard says    started, failed, exit, lost, released, ended, broken   (key "event")
"""

import ctypes
import json
import os
import signal
import sys
import time
from typing import Any

from firstlight.supervise.control import Control
from firstlight.supervise.ending import Ended, Ending, Member, descendants, everybody, look, own_children
from firstlight.supervise.polling import wait_for
from firstlight.supervise.pump import Channel, Pump
from firstlight.supervise.spawn import run_server

STREAMS = ("stdout", "stderr")

PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

TICK_S = 1.0
ENDING_TICK_S = 0.1
KILLING_TICK_S = 0.01
DRAIN_S = 2.0
"""How long the log is still read after the last process has gone."""
LOSS_REPORT_S = 10.0


def become_subreaper() -> bool:
    """Have orphans below this process become its children. False where the kernel refuses."""
    return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def set_title(title: str) -> None:
    """Show `title` in ps and top, by overwriting the argument area (proc(5): arg_start and arg_end)."""
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - pathlib would double the guard's memory
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    if 0 < start < end:
        room = end - start
        ctypes.memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"firstlightguard", 0, 0, 0)


class Guard:
    """The guard's one loop: pump, reap, listen, and end the tree when that is due."""

    def __init__(self, control: Control, start: dict[str, Any], wakeup: int) -> None:
        self._control = control
        self._pumps = [Pump(name, Channel(*start[name]["channel"])) for name in STREAMS]
        self._wakeup = wakeup
        self._grace_s = float(start["grace_s"])
        self._exits = _open_exits(start["folder"])
        self._root = 0
        self._released = False
        self._ending: Ending | None = None
        self._ended: Ended | None = None
        self._drain_until = 0.0
        self._losses_said: dict[str, tuple[int, float]] = {}

    def run(self, root: int) -> None:
        """Until there is nothing left to guard."""
        self._root = root
        member = look(root)
        self._control.say("started", pid=root, started=member.started if member else 0)
        while True:
            for pump in self._pumps:
                pump.move()
            self._report_losses()
            self._reap()
            self._listen()
            self._end()
            if self._finished():
                return
            self._wait()

    def end_if_alone(self) -> None:
        """After a bug in the loop: still leave nothing behind if firstlight is gone."""
        ending = Ending(self._descendants, self._grace_s, time.monotonic(), orphans=own_children)
        while ending.step(time.monotonic()) is None:
            self._reap()
            time.sleep(ENDING_TICK_S)

    def _finished(self) -> bool:
        if self._ended is not None:
            return self._ending is None and self._control.closed
        return self._released and self._root == 0 and all(p.ended for p in self._pumps) and not self._descendants()

    def _wait(self) -> None:
        readable = [self._wakeup, *(pump.source for pump in self._pumps if not pump.ended)]
        if not self._control.closed:
            readable.append(self._control.fileno())
        wait_for(readable, self._tick_s(), self._control.fileno() if self._control.wants_to_write else -1)
        try:
            signals = os.read(self._wakeup, 4096)
        except BlockingIOError:
            signals = b""
        if signal.SIGTERM in signals:
            self._begin_ending(self._grace_s)

    def _tick_s(self) -> float:
        if self._ending is None:
            return TICK_S
        return KILLING_TICK_S if self._ending.insisting else ENDING_TICK_S

    def _listen(self) -> None:
        self._control.flush()
        for message in self._control.read():
            if message["do"] == "stop":
                self._begin_ending(float(message["grace_s"]))
            elif message["do"] == "release":
                self._released = True
                self._control.say("released")
        if self._control.closed and not self._released:
            self._begin_ending(self._grace_s)

    def _begin_ending(self, grace_s: float) -> None:
        now = time.monotonic()
        if self._ending is not None:
            self._ending.hurry(now, grace_s)
        elif self._ended is None:
            self._ending = Ending(self._descendants, grace_s, now, orphans=own_children)

    def _end(self) -> None:
        """Step on with the ending, if there is one; when the tree is gone, and the log is whole, say so."""
        now = time.monotonic()
        if self._ending is None:
            return
        if self._ended is None:
            self._ended = self._ending.step(now)
            self._drain_until = now + DRAIN_S
        ended = self._ended
        if ended and (all(pump.ended for pump in self._pumps) or now >= self._drain_until or ended.left):
            self._ending = None
            self._report_losses(every_s=0)
            self._control.say("ended", **ended._asdict())

    def _descendants(self) -> list[Member]:
        return descendants([os.getpid()], everybody())

    def _reap(self) -> None:
        """Collect every child that has ended, with its identity, which only lasts until it is collected."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            member = look(ended.si_pid)
            _, status = os.waitpid(ended.si_pid, 0)
            self._report_exit(ended.si_pid, member, status)

    def _report_exit(self, pid: int, member: Member | None, status: int) -> None:
        facts = {
            "pid": pid,
            "started": member.started if member else 0,
            "name": member.name if member else "",
            "status": status,
            "at": time.time(),
            "root": pid == self._root,
        }
        if pid == self._root:
            self._root = 0
        self._control.say("exit", **facts)
        try:
            os.write(self._exits, json.dumps(facts).encode() + b"\n")
        except OSError:
            return  # a full disk; firstlight has been told over the socket

    def _report_losses(self, every_s: float = LOSS_REPORT_S) -> None:
        now = time.monotonic()
        for pump in self._pumps:
            said, at = self._losses_said.get(pump.stream, (0, -every_s))
            if pump.missed > said and now - at >= every_s:
                self._losses_said[pump.stream] = (pump.missed, now)
                self._control.say("lost", stream=pump.stream, bytes=pump.missed, errno=pump.refusal)


def _open_exits(folder: str) -> int:
    try:
        return os.open(f"{folder}/exits.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _signals_to_pipe() -> int:
    """Have SIGCHLD and SIGTERM written to a pipe; its read end. SIGINT and SIGHUP do not concern the guard."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return readable


def _keep_from_the_server(control_fd: int, start: dict[str, Any]) -> None:
    """What the guard inherited, the server must not."""
    for fd in (control_fd, *(fd for name in STREAMS for fd in (*start[name]["channel"], start[name]["write_end"]))):
        if fd >= 0:
            os.set_inheritable(fd, False)


def main() -> None:
    """`… RUN CONTROL_FD`: be the guard of one server."""
    run, control_fd = sys.argv[-2], int(sys.argv[-1])
    become_subreaper()
    set_title(f"firstlight guard {run}")
    wakeup = _signals_to_pipe()
    control = Control(control_fd)
    message = control.first()
    if message is None:
        return
    start = message["start"]
    _keep_from_the_server(control_fd, start)
    guard = Guard(control, start, wakeup)
    try:
        root = run_server(start)
    except OSError as error:
        control.say("failed", errno=error.errno, where=error.filename or "fork")
        return
    for stream in STREAMS:
        os.close(start[stream]["write_end"])
    try:
        guard.run(root)
    except BaseException as error:
        import traceback  # only now: it would cost a megabyte all the time

        control.say("broken", traceback="".join(traceback.format_exception(error)))
        if control.closed:
            guard.end_if_alone()
        raise
