"""The guard: a small process between firstlight and the server, which outlives both and leaves nothing behind.

It starts the server, keeps its log, reaps every orphan of its tree and reports how each ended. Should firstlight
vanish, even by SIGKILL, the guard ends the whole tree; should firstlight say "release", it stays as the keeper of
the log until the server is gone. SIGTERM to the guard ends the tree, too.

The tree cannot escape it: the guard is a child subreaper (prctl(2)), so a process that forks twice or calls setsid
becomes its child at last. It leads a session of its own, where no Ctrl-C of a terminal arrives.

If the guard is killed, firstlight starts another at once, which adopts the server: it reads on from the same pipes,
and ends the tree if firstlight vanishes later. If firstlight is killed, the guard has a deputy before it ends the
tree, which would finish the work. So two have to be killed within a few hundredths of a second of each other, before
the second has an heir, for a server to be left behind.

Standard library only, started with `python -I -S`: it costs about 11 MB, and no time while nothing happens. Talks
with `guardlink` in lines of JSON over a socket that both inherit; the command and its environment come that way,
because an argument list is public and may hold secrets.

    firstlight says   {"start": {...}} or {"adopt": {...}} once, then {"do": "stop", "insist_at": 12.5} (on the
                      monotonic clock, which all processes share) or {"do": "release"}
    the guard says    started or adopted, failed, exit, lost, stopping, released, ended, broken   (key "event")
"""

import json
import os
import signal
import socket
import sys
import time
from typing import Any

from firstlight.supervise.launch.control import Control
from firstlight.supervise.launch.ending import Ended, Ending, look
from firstlight.supervise.launch.family import Family, Identity
from firstlight.supervise.launch.guardprocess import become_subreaper, set_title, signals_to_pipe
from firstlight.supervise.launch.polling import wait_for
from firstlight.supervise.launch.pump import Channel, Pump
from firstlight.supervise.launch.spawn import run_server
from firstlight.supervise.launch.wards import Adopted, Born, Wards

STREAMS = ("stdout", "stderr")

BREATH_S = 0.1
SIP_BYTES = 16 << 10
"""After so little log the guard rests for a breath, since more of the kind will come: a chatty server writes a
hundred times a second, and each wake-up costs. The pipe has room for it all meanwhile."""
ENDING_TICK_S = 0.1
KILLING_TICK_S = 0.01
DRAIN_S = 2.0
"""How long the log is still read after the last process has gone."""
LOSS_REPORT_S = 10.0
DEPUTY_LOOKS_S = 2.0


class Guard:
    """The guard's one loop: pump, reap, listen, and end the tree when that is due."""

    def __init__(self, control: Control, order: dict[str, Any], wards: Wards, root: Identity, wakeup: int) -> None:
        self._control = control
        self._order = order
        self._wards = wards
        self._root = root
        self._wakeup = wakeup
        self._pumps = [Pump(name, Channel(*order[name]["channel"])) for name in STREAMS]
        self._grace_s = float(order["grace_s"])
        self._released = False
        self._ending: Ending | None = None
        self._ended: Ended | None = None
        self._drain_until = 0.0
        self._losses_said: dict[str, tuple[int, float]] = {}
        self._deputy: socket.socket | None = None

    def run(self) -> None:
        """Until there is nothing left to guard."""
        while True:
            moved = sum(pump.move() for pump in self._pumps)
            self._report_losses()
            self._reap()
            self._listen()
            self._end()
            if self._finished():
                self._dismiss_deputy()
                return
            self._wait(breath=0 < moved <= SIP_BYTES)

    def end_if_alone(self) -> None:
        """After a bug in the loop: still leave nothing behind if firstlight is gone."""
        ending = self._new_ending(time.monotonic() + self._grace_s)
        while ending.step(time.monotonic()) is None:
            self._reap()
            time.sleep(ENDING_TICK_S)

    def _finished(self) -> bool:
        if self._ended is not None:
            return self._ending is None and self._control.closed
        if not self._released or self._wards.root_lives() or not all(pump.ended for pump in self._pumps):
            return False
        return not any(member.alive for member in self._wards.members())

    def _wait(self, *, breath: bool) -> None:
        """Until something happens, or a tick is over; the log alone has to wait for the end of a breath."""
        tick_s = self._tick_s()
        urgent = [self._wakeup, *self._wards.events()]
        if not self._control.closed:
            urgent.append(self._control.fileno())
        writable = self._control.fileno() if self._control.wants_to_write else -1
        if not breath or not wait_for(urgent, min(tick_s, BREATH_S), writable):
            wait_for([*urgent, *(pump.source for pump in self._pumps if not pump.ended)], tick_s, writable)
        try:
            signals = os.read(self._wakeup, 4096)
        except BlockingIOError:
            signals = b""
        if signal.SIGTERM in signals:
            self._begin_ending(time.monotonic() + self._grace_s)

    def _tick_s(self) -> float:
        if self._ending is not None:
            return KILLING_TICK_S if self._ending.insisting else ENDING_TICK_S
        if any(pump.missed > self._losses_said.get(pump.stream, (0, 0.0))[0] for pump in self._pumps):
            return LOSS_REPORT_S
        return self._wards.look_every_s

    def _listen(self) -> None:
        self._control.flush()
        for message in self._control.read():
            if message["do"] == "stop":
                self._control.say("stopping")
                self._begin_ending(float(message["insist_at"]))
            elif message["do"] == "release":
                self._released = True
                self._control.say("released")
        if self._control.closed and not self._released and self._ended is None and self._deputy is None:
            self._begin_ending(time.monotonic() + self._grace_s)
            self._have_a_deputy()

    def _begin_ending(self, insist_at: float) -> None:
        if self._ending is not None:
            self._ending.hurry(insist_at)
        elif self._ended is None:
            self._ending = self._new_ending(insist_at)

    def _new_ending(self, insist_at: float) -> Ending:
        return Ending(self._wards.members, insist_at, escapers=self._wards.escapers)

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

    def _reap(self) -> None:
        for buried in self._wards.attend():
            facts = {**buried._asdict(), "at": time.time(), "root": (buried.pid, buried.started) == self._root}
            self._control.say("exit", **facts)
            note_exit(self._order["exits"], facts)

    def _report_losses(self, every_s: float = LOSS_REPORT_S) -> None:
        now = time.monotonic()
        for pump in self._pumps:
            said, at = self._losses_said.get(pump.stream, (0, -every_s))
            if pump.missed > said and now - at >= every_s:
                self._losses_said[pump.stream] = (pump.missed, now)
                self._control.say("lost", stream=pump.stream, bytes=pump.missed, errno=pump.refusal)

    def _have_a_deputy(self) -> None:
        """Firstlight is gone, nobody would notice the death of this guard: a child that would do its work."""
        known = [(member.pid, member.started) for member in self._wards.members()]
        mine, its = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            return
        if pid:
            its.close()
            self._deputy = mine
            if isinstance(self._wards, Born):
                self._wards.deputy = pid
            return
        try:
            mine.close()
            self._be_deputy(its, Family(self._root, self._order["mark"], known))
        finally:
            os._exit(0)

    def _be_deputy(self, guards_life: socket.socket, family: Family) -> None:
        insist_at = time.monotonic() + self._grace_s
        os.setsid()
        while not wait_for([guards_life.fileno()], DEPUTY_LOOKS_S):
            family.members()
        if guards_life.recv(1):
            return  # it has finished its work
        order = {**self._order, "grace_s": max(0.0, insist_at - time.monotonic())}
        Guard(Control(guards_life.detach()), order, Adopted(self._root, family), self._root, signals_to_pipe()).run()

    def _dismiss_deputy(self) -> None:
        if self._deputy is None:
            return
        try:
            self._deputy.send(b".")
        except OSError:
            return  # it was killed


def note_exit(file: int, facts: dict[str, Any]) -> None:
    """Add a line to exits.jsonl. If the disk is full it is let go: firstlight hears of it over the socket."""
    try:
        os.write(file, json.dumps(facts).encode() + b"\n")
    except OSError:
        return


def _keep_from_the_server(fds: list[int]) -> None:
    """What the guard inherited, the server must not."""
    for fd in fds:
        if fd >= 0:
            os.set_inheritable(fd, False)


def _give_birth(control: Control, order: dict[str, Any], wakeup: int) -> Guard | None:
    only_for_the_birth = [order[name]["write_end"] for name in STREAMS]
    if isinstance(order["cwd"], int):
        only_for_the_birth.append(order["cwd"])
    channels = [fd for name in STREAMS for fd in order[name]["channel"]]
    _keep_from_the_server([control.fileno(), order["exits"], *channels, *only_for_the_birth])
    try:
        pid = run_server(order)
    except OSError as error:
        control.say("failed", errno=error.errno, where=error.filename or "fork")
        return None
    for fd in only_for_the_birth:
        os.close(fd)
    member = look(pid)
    root = (pid, member.started if member else 0)
    control.say("started", pid=pid, started=root[1])
    return Guard(control, order, Born(pid), root, wakeup)


def _adopt(control: Control, order: dict[str, Any], wakeup: int) -> Guard:
    root = (order["root"][0], order["root"][1])
    family = Family(root, order["mark"], [(pid, started) for pid, started in order["known"]])
    control.say("adopted")
    return Guard(control, order, Adopted(root, family), root, wakeup)


def main() -> None:
    """`… RUN CONTROL_FD`: be the guard of one server."""
    run, control_fd = sys.argv[-2], int(sys.argv[-1])
    become_subreaper()
    set_title(f"firstlight guard {run}")
    wakeup = signals_to_pipe()
    control = Control(control_fd)
    message = control.first()
    if message is None:
        return
    if "adopt" in message:
        guard: Guard | None = _adopt(control, message["adopt"], wakeup)
    else:
        guard = _give_birth(control, message["start"], wakeup)
    if guard is None:
        return
    try:
        guard.run()
    except BaseException as error:
        import traceback  # only now: it would cost a megabyte all the time

        control.say("broken", traceback="".join(traceback.format_exception(error)))
        if control.closed:
            guard.end_if_alone()
        raise
