"""A process of the server ended: which first, how, with what words, and who still waits for it. Pure."""

from collections.abc import Iterator
from signal import Signals

from firstlight.core.process import Exit
from firstlight.core.report import Finding
from firstlight.core.words import exit_words
from firstlight.diagnose.findings.quotes import ESTABLISHED
from firstlight.diagnose.logwords import first_error
from firstlight.diagnose.names import of_exit
from firstlight.diagnose.scene import Scene

_CRASHES = {Signals.SIGABRT, Signals.SIGBUS, Signals.SIGSEGV, Signals.SIGILL, Signals.SIGFPE}


def a_death(scene: Scene) -> Iterator[Finding]:
    """The first death; the others are told as what came later."""
    for gone in scene.deaths[:1]:
        waiting = scene.waiters_for((gone.id.pid,))
        error = first_error(scene.bundle)
        evidence = [f"{of_exit(gone)} {exit_words(gone)}"]
        evidence += [f"first error in the log: {error.message}"] if error else []
        evidence += [f"later, {of_exit(other)} {exit_words(other)}" for other in scene.deaths[1:5]]
        evidence += [f"{scene.name(pid)} still waits" for pid in waiting[:4]]
        yield Finding(
            id="rank_died" if scene.is_rank(gone) else "process_died",
            title=f"{of_exit(gone)} {exit_words(gone)}",
            verdict=ESTABLISHED,
            pids=(gone.id.pid, *waiting),
            evidence=tuple(evidence),
            advice=(_advice(gone),),
        )


def _advice(gone: Exit) -> str:
    if gone.oom:
        return "Give the server more memory, or let it need less: fewer workers, a smaller model, a smaller cache."
    if gone.signal in _CRASHES:
        return "Start it again with PYTHONFAULTHANDLER=1 to see where it crashed, and look for a core file."
    if gone.signal is not None:
        return "Find out who sent the signal: the out-of-memory killer (dmesg), an orchestrator's probe, a person."
    if gone.clean:
        return "It ended as if its work were done: check that the command starts a server and not a one-off task."
    return "Read the first error; what other processes print afterwards follows from it."
