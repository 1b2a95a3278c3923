"""A server that firstlight started, owned from then on: its reports, its log, its end."""

import os
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core.gap import Gap
from firstlight.core.process import Exit, ProcessId
from firstlight.supervise.launch.control import START_S
from firstlight.supervise.launch.ending import INSIST_S, Ended, Ending
from firstlight.supervise.launch.family import Family, mark_of
from firstlight.supervise.launch.guard import DRAIN_S
from firstlight.supervise.launch.guardlink import GuardLink, GuardProcess, guard_gap, start_guard
from firstlight.supervise.launch.orphans import Orphans
from firstlight.supervise.launch.refusals import no_guard, refusal
from firstlight.supervise.launch.spawn import EXEC_S
from firstlight.supervise.launch.streams import Output, log_gap
from firstlight.supervise.log.capture import LogFollower
from firstlight.supervise.processes.exits import exit_of

GRACE_S = 10.0
"""How long a server is given to end by itself once it was asked to."""
STARTED_S = START_S + EXEC_S
TICK_S = 0.05
ANSWER_S = 5.0
"""How long a guard may take to say that it has heard; one that has not is replaced."""


class StopResult(NamedTuple):
    """How a server was ended: how many were asked, how many had to be killed, and who is left even so."""

    asked: int
    killed: int
    left: tuple[str, ...]


class Server:
    """A server that firstlight started. To be ended with `stop`, or let go with `release`.

    If firstlight dies without either, the guard ends the server. If the guard dies, another adopts the server; should
    none be able to start, this object goes on keeping the log, and `stop` ends the tree itself.
    """

    def __init__(
        self,
        run: str,
        guard: GuardProcess,
        output: Output,
        *,
        environ: Mapping[str, str],
        clock: Clock,
        grace_s: float,
    ) -> None:
        self.root = ProcessId(pid=0, started=0)
        self.environ = environ
        self.stdout, self.stderr = output.paths
        self.gaps = list(output.gaps)
        self._run = run
        self._output = output
        self._clock = clock
        self._grace_s = grace_s
        self._closed = False
        self._result: StopResult | None = None
        self._reaped: list[Exit] = []
        self._family = Family((0, 0), mark_of(run))
        self._orphans = Orphans(self._family, self.root, output.exits, clock)
        self._followers = output.followers(clock)
        self._link = GuardLink(guard, self._next_guard, output.pumps)

    @property
    def guard(self) -> int:
        """The guard of now."""
        return self._link.guard.pid

    @property
    def reapers(self) -> tuple[int, ...]:
        """Who inherits the orphans of the tree: the guard."""
        return (self.guard,)

    @property
    def own_pids(self) -> tuple[int, ...]:
        """Who is firstlight, not the server: this process, its guard, and the guards that there were before."""
        return (os.getpid(), *self._link.pids)

    @property
    def guard_lost(self) -> bool:
        """True once the guard has died and none can follow; this process keeps the log then."""
        return self._link.lost.is_set() and not self._link.released.is_set()

    def begin(self, message: dict[str, object]) -> None:
        """Have the guard start the server; returns once it runs.

        Raises:
            CommandNotFound: the program is not there, or may not be run.
            LaunchFailed: the system refused a process, or the guard ended or kept silent.
        """
        deadline = Deadline(self._clock, STARTED_S, "the guard's word that the server has started")
        self._link.start(message, deadline_s=START_S)
        while not deadline.passed:
            if self._link.facts.empty():
                if self._link.lost.is_set():
                    raise no_guard("the guard of the server ended at once")
                self._clock.sleep(0.002)
                continue
            fact = self._link.facts.get_nowait()
            if fact["event"] == "started":
                self._born(_id(fact))
                return
            if fact["event"] != "stopped":
                raise refusal(fact, message)
        raise no_guard(f"waited {STARTED_S:.0f} s for {deadline.name}, in vain")

    def followers(self) -> list[LogFollower]:
        """The logs, and behind them what could only be kept in memory."""
        return self._followers

    def poll(self) -> list[Exit]:
        """Exits that were seen since the last call; never blocks. What went wrong is in `gaps`."""
        exits = self._take_reaped()
        while not self._link.facts.empty():
            fact = self._link.facts.get_nowait()
            match fact["event"]:
                case "exit":
                    exits.append(exit_of(_id(fact), fact["name"], fact["status"], fact["at"]))
                case "lost":
                    self._note(log_gap(fact["stream"], fact["errno"]))
                case event:
                    self._note(guard_gap(event, fact.get("traceback", "")))
        if self.guard_lost and not self._closed:
            self._note(guard_gap("gone"))
        return exits

    def reported_exits(self) -> list[Exit]:
        """The same as `poll`, by the name that a watched target gives it."""
        return self.poll()

    def stop(self, grace_s: float = GRACE_S, while_waiting: Callable[[], None] | None = None) -> StopResult:
        """End the server: ask, wait up to `grace_s`, insist, verify. Then let go of the guard and of the log.

        `while_waiting` is called some twenty times a second meanwhile; if it raises, the guard goes on by itself.
        """
        if self._result is not None:
            return self._result
        ended = self._stop_by_guard(grace_s, while_waiting) or self._stop_by_hand(grace_s, while_waiting)
        self._result = StopResult(*ended)
        self.close()
        return self._result

    def hurry(self) -> None:
        """While `stop` waits: no more grace."""
        self._link.order({"do": "stop", "insist_at": self._clock.monotonic()})

    def release(self, deadline_s: float = 5.0) -> bool:
        """Leave the server running and the guard as the keeper of its log.

        False if there is no guard, nor can be: the server then loses the reader of its output when firstlight ends,
        and most servers end at their next line of log.
        """
        return self._link.order({"do": "release"}, deadline_s) and self._link.released.wait(deadline_s)

    def close(self) -> None:
        """Let go of the guard and of the files. Without `release` or `stop` before, the server is ended."""
        if self._closed:
            return
        self._closed = True
        self._link.close()
        if not self._link.released.is_set():
            self._await_guard(GRACE_S)
            if self._result is None and self._link.lost.is_set():
                self._stop_by_hand(0, None)
        self._reaped += self._take_reaped()
        for pump in self._link.pumps:
            pump.move()
        self._output.close()

    def _born(self, root: ProcessId) -> None:
        self.root = root
        self._family = Family((root.pid, root.started), mark_of(self._run))
        self._orphans = Orphans(self._family, root, self._output.exits, self._clock)

    def _next_guard(self) -> tuple[GuardProcess, dict[str, Any]]:
        """Called in the thread of the link: a guard for the orphans of the one that died."""
        guard = start_guard(self._run, self._output.fds)
        return guard, {
            "root": [self.root.pid, self.root.started],
            "mark": mark_of(self._run),
            "known": self._family.known,
            "grace_s": self._grace_s,
            **self._output.message,
        }

    def _stop_by_guard(self, grace_s: float, while_waiting: Callable[[], None] | None) -> Ended | None:
        if not self._link.order({"do": "stop", "insist_at": self._clock.monotonic() + grace_s}):
            return None
        deadline = Deadline(self._clock, grace_s + INSIST_S + DRAIN_S + ANSWER_S, "the guard's end of the server")
        answer = Deadline(self._clock, ANSWER_S, "the guard's word that it ends the server")
        while self._link.ended is None and not self._link.lost.is_set() and not deadline.passed:
            if answer.passed and not self._link.stopping.is_set():
                self._link.guard.kill()  # the next one is given the same order
                answer = Deadline(self._clock, ANSWER_S, answer.name)
            self._wait(while_waiting)
        ended = self._link.ended
        return Ended(ended["asked"], ended["killed"], tuple(ended["left"])) if ended else None

    def _stop_by_hand(self, grace_s: float, while_waiting: Callable[[], None] | None) -> Ended:
        """There is no guard, or it does not come to an end (then it goes first)."""
        self._note(guard_gap("gone"))
        self._link.retire()
        self._await_guard(2.0)
        insist_at = self._clock.monotonic() + grace_s
        ending = Ending(self._family.members, insist_at, escapers=self._family.newborn)
        while (ended := ending.step(self._clock.monotonic())) is None:
            self._wait(while_waiting)
        return ended

    def _wait(self, while_waiting: Callable[[], None] | None) -> None:
        if while_waiting:
            while_waiting()
        self._reaped += self._take_reaped()
        self._clock.sleep(TICK_S)

    def _take_reaped(self) -> list[Exit]:
        """Exits of those who are children of this process since a guard died; while it lives, learn its children."""
        exits, self._reaped = self._reaped, []
        if self.root.pid and (len(self._link.pids) > 1 or self._link.lost.is_set()):
            return exits + self._orphans.reap()
        try:
            self._family.learn(procfs.children(self.guard))
        except OSError:
            return exits  # it has died just now; whom it had before is known
        return exits

    def _await_guard(self, seconds: float) -> None:
        try:
            self._link.guard.wait(seconds)
        except subprocess.TimeoutExpired:
            self._note(guard_gap("silent"))

    def _note(self, gap: Gap) -> None:
        if gap not in self.gaps:
            self.gaps.append(gap)


def _id(fact: dict[str, Any]) -> ProcessId:
    return ProcessId(pid=fact["pid"], started=fact["started"])
