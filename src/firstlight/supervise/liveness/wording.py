"""The sentences of a judgement: what was measured, in numbers, for people."""

from collections.abc import Iterable, Sequence

from firstlight.core.process import Exit
from firstlight.core.vocabulary import Signal
from firstlight.core.words import seconds, size
from firstlight.supervise.liveness.activity import Activity, ProcessMotion
from firstlight.supervise.liveness.naps import Nap
from firstlight.supervise.liveness.suspicion import Facts, Suspicion

_NAMED_MAX = 3
_MINUTES_FROM_S = 120
_TELLING = (
    Signal.COUNTER,
    Signal.READ,
    Signal.SOCKET,
    Signal.WRITE,
    Signal.COMPILE_CHILD,
    Signal.GPU,
    Signal.GPU_MEMORY,
    Signal.SHARED_MEMORY,
    Signal.MEMORY,
    Signal.FAULTS,
    Signal.LOG,
    Signal.PHASE,
    Signal.TREE,
    Signal.CPU,
)
"""Signals in the order in which they tell most."""
_TOLD = 2
_RATES = {
    Signal.READ: ("reads", "has read", "read_bytes_s"),
    Signal.WRITE: ("writes", "has written", "write_bytes_s"),
    Signal.SOCKET: ("sends and receives", "has sent or received", "socket_bytes_s"),
    Signal.MEMORY: ("grows by", "has grown", "growth_bytes_s"),
}
REPEATS_TOLD = 2
"""A log that has spoken only once since the last signal does not say one thing again and again."""
_TELLING_RATE = 1000
"""Bytes per second. A rate below this has dropped since the signal, or its bytes are counted elsewhere (mapped files
are fetched, not read), so it would belie it.
"""


def moving(activity: Activity, facts: Facts) -> str:
    """What moves, the most telling signals first."""
    told = [_one_signal(signal, activity) for signal in _TELLING if signal in activity.signals]
    return ", ".join(told[:_TOLD]) or _nothing_now(facts)


def _nothing_now(facts: Facts) -> str:
    """No signal in the window, and none is missed yet."""
    if not facts.processes or facts.now <= 0:
        return "no sample yet"
    return f"the last sign of progress was {facts.quiet_s:.0f} s ago"


def computing(facts: Facts) -> str:
    """CPU and nothing else."""
    busy = [process for process in facts.processes.values() if process.busy]
    who = f"{_names(p.name for p in busy)} {_verb(busy, 'compute')} ({_percent(_most(busy).cpu_cores)} of a core)"
    return f"{who}; nothing else has told of progress for {facts.cpu_only_for_s:.0f} s"


def changing_stacks() -> str:
    """Two looks differed, and no cheap signal does."""
    return "no cheap signal, but two looks showed that it works"


def quiet(facts: Facts, asleep: str = "") -> str:
    """No signal, and no proof of a stall; perhaps somebody is `asleep`, who may give one when woken."""
    if asleep:
        return f"no progress signal for {facts.quiet_s:.0f} s; {asleep}"
    heartbeat = _heartbeat(facts)
    return f"no progress signal for {facts.quiet_s:.0f} s, of {facts.allowed_s:.0f} s that may pass{heartbeat}"


def asleep(nap: Nap, now: float) -> str:
    """Who sleeps, and when they wake."""
    left_s = nap.until - now
    return f"{nap.name} is asleep and wakes in {f'{left_s:.0f} s' if left_s < _MINUTES_FROM_S else seconds(left_s)}"


def idle() -> str:
    """A server that has nothing to do."""
    return "idle, no request is in flight"


def stalled(suspicion: Suspicion, facts: Facts, lost: Sequence[Exit]) -> str:
    """Why this is a stall."""
    if suspicion == Suspicion.STOPPED:
        stopped = [facts.processes[pid] for pid in facts.stopped_since if pid in facts.processes]
        names = _names(p.name for p in stopped)
        return f"{names} {'is' if len(stopped) == 1 else 'are'} stopped by a signal (state T)"
    if suspicion == Suspicion.LOST and lost:
        gone = _names(f"{exit_.label or exit_.name} (pid {exit_.id.pid})" for exit_ in lost)
        return f"{gone} exited, and the others have waited for {facts.cpu_only_for_s:.0f} s"
    if suspicion == Suspicion.CPU_ONLY:
        busy = [process for process in facts.processes.values() if process.busy]
        spins = f"{_names(p.name for p in busy)} {_verb(busy, 'spin')} in the same wait"
        return f"{spins} for {facts.cpu_only_for_s:.0f} s, and whom they wait for does not come"
    repeats = facts.repeats >= REPEATS_TOLD
    log = "nothing new in the log (the same line again and again)" if repeats else "no new log text"
    return f"no CPU, no bytes and {log} for {facts.quiet_s:.0f} s, and two looks showed no change{_heartbeat(facts)}"


def blind() -> str:
    """Added where too little can be seen."""
    return "; with so little to see it may be quiet for twice as long"


def _one_signal(signal: Signal, activity: Activity) -> str:
    doers = [process for process in activity.processes.values() if signal in process.signals]
    if not doers:
        return str(signal)
    if signal in {Signal.CPU, Signal.COMPILE_CHILD}:
        most = _most(doers)
        return (
            f"{most.name} {'compiles' if signal != Signal.CPU else 'computes'} ({_percent(most.cpu_cores)} of a core)"
        )
    if signal not in _RATES:
        return f"{signal} ({_names(p.name for p in doers)})"
    now, before, field = _RATES[signal]
    rate, name = max((getattr(process, field), process.name) for process in doers)
    return f"{name} {now} {size(rate)}/s" if rate >= _TELLING_RATE else f"{name} {before}"


def _heartbeat(facts: Facts) -> str:
    """The little that a silent server does."""
    most = max(facts.processes.values(), key=lambda process: process.cpu_cores, default=None)
    if most is None or most.cpu_cores < 0.01:
        return ""
    return f" ({most.name} uses {_percent(most.cpu_cores)} of a core, as a heartbeat would)"


def _most(processes: Sequence[ProcessMotion]) -> ProcessMotion:
    return max(processes, key=lambda process: process.cpu_cores)


def _verb(doers: Sequence[ProcessMotion], verb: str) -> str:
    return f"{verb}s" if len(doers) == 1 else verb


def _names(names: Iterable[str]) -> str:
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - _NAMED_MAX} more" if len(every) > _NAMED_MAX else ""
    return ", ".join(every[:_NAMED_MAX]) + more


def _percent(cores: float) -> str:
    return f"{cores:.0%}".replace("%", " %")
