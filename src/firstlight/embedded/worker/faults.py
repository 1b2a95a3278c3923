"""Faults on purpose, for tests of what the other ranks and the front say and do then. Off unless asked for:

    FIRSTLIGHT_FAULT="ACTION:rank=1:phase=serving:pass=5:number=7:what=prefill"

ACTION is what the rank does to itself, once, when it comes to a phase, a pass or a collective of which all conditions
hold (`what` is a part of its name, `number` the collective's in its pass, the first is 1): kill (SIGKILL), stop
(SIGSTOP), exit (with code 0), raise (an error), sleep (for an hour), or skip (leave this collective out).
"""

import os
import signal
import time

VARIABLE = "FIRSTLIGHT_FAULT"
HOUR_S = 3600.0


class Fault:
    """One fault of this rank, waiting for its moment."""

    def __init__(self, action: str, where: dict[str, str]) -> None:
        self._action = action
        self._part = where.pop("what", "")
        self._where = where
        self._struck = False

    def strikes(self, phase: str, number: int = 0, collective: int = 0, what: str = "") -> bool:
        """Do it if this is the moment; returns whether the collective that comes now is to be left out."""
        here = {"phase": phase, "pass": str(number), "number": str(collective)}
        exactly = all(here[key] == asked for key, asked in self._where.items())
        if self._struck or not exactly or self._part not in what:
            return False
        self._struck = True
        match self._action:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "exit":
                os._exit(0)
            case "sleep":
                time.sleep(HOUR_S)
            case "raise":
                raise RuntimeError(f"a fault on purpose, asked for by {VARIABLE}")
        return self._action == "skip"


def fault_of(rank: int) -> Fault | None:
    """The fault that the environment asks of this rank."""
    action, *conditions = os.environ.get(VARIABLE, "").split(":")
    where = dict(condition.split("=", 1) for condition in conditions)
    return Fault(action, where) if where.pop("rank", "") == str(rank) else None
