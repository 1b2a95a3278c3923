"""Between two trials: nothing of one may poison the next.

The attempt has ended its server already, with all of its processes and its shared memory. This is the second look:
processes that live on, a port that is still taken, GPU memory that is not given back, lock files of builds that
nobody goes on with. Each is waited for, within a deadline; what stays and would falsify the next trial ends the
isolation with a sentence, the rest is only said.
"""

from collections.abc import Callable, Mapping

from firstlight.attempt import Traces
from firstlight.clock import Clock, Deadline
from firstlight.core.gap import Gap
from firstlight.core.process import ProcessId
from firstlight.errors import FirstlightError
from firstlight.isolate.trial import Launched

PROCESSES_S = 15.0
PORT_S = 15.0
GPUS_S = 30.0
POLL_S = 0.2


class Poisoned(FirstlightError):
    """Something of a trial stays that would falsify the next."""

    exit_code = 4


class Between:
    """Made before each trial, in the environment that it gets; asked after it."""

    def __init__(self, clock: Clock, environ: Mapping[str, str], port: int) -> None:
        self._clock = clock
        self._port = port
        self._traces = Traces(clock, environ)

    def clean(self, launched: Launched) -> tuple[str, ...]:
        """Make sure that the trial is over; gives what there is to say.

        Raises:
            Poisoned: it is not, and the next would not be judged fairly.
        """
        await_end(self._traces, launched.processes, self._clock)
        self._await_port()
        notes = [f"{name} was left behind and could not be removed" for name in launched.left if "/dev/shm" in name]
        return (*notes, *self._gpu_notes(launched), *self._lock_notes())

    def _await_port(self) -> None:
        def taken() -> bool:
            return self._port != 0 and self._traces.listener(self._port) is not None

        if _lasts(taken, PORT_S, "the trial's port", self._clock):
            owner = self._traces.listener(self._port)
            who = (
                f"{owner.name} (pid {owner.pid})" if owner is not None and not isinstance(owner, Gap) else "somebody"
            )
            raise Poisoned(
                f"port {self._port} is still taken by {who} after the trial, and the next could not listen",
                "End that process, then resume; without --keep-port each trial gets a port of its own.",
            )

    def _gpu_notes(self, launched: Launched) -> list[str]:
        pids = [one.pid for one in launched.processes]
        if not _lasts(lambda: bool(self._traces.on_gpus(pids)), GPUS_S, "the trial's GPU memory", self._clock):
            return []
        return [f"{GPUS_S:.0f} s after the trial the GPU still has memory of it; the next one may have less"]

    def _lock_notes(self) -> list[str]:
        notes = []
        for path in self._traces.stale_locks():
            gone = self._traces.remove_lock(path)
            became = "was removed" if gone else "could not be removed, and may hold up the next trial"
            notes.append(
                f"the lock file {path}, made during this trial by a build that nobody goes on with, {became}"
            )
        return notes


def await_end(traces: Traces, processes: Mapping[ProcessId, str], clock: Clock) -> None:
    """Wait until these processes, by name, have ended.

    Raises:
        Poisoned: one lives on.
    """
    if not _lasts(lambda: bool(traces.alive(processes)), PROCESSES_S, "the end of the trial's processes", clock):
        return
    one = next(iter(traces.alive(processes)), None)
    if one is not None:
        raise Poisoned(
            f"{processes[one]} (pid {one.pid}) of the trial lives on, and would disturb the next",
            f"End it (`kill -9 {one.pid}`; in state D only a reboot or its file system helps), then resume.",
        )


def _lasts(condition: Callable[[], bool], seconds: float, name: str, clock: Clock) -> bool:
    """Whether a condition still holds when its time is up; usually it is over at once."""
    deadline = Deadline(clock, seconds, name)
    while condition():
        if deadline.passed:
            return True
        clock.sleep(POLL_S)
    return False
