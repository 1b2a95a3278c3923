"""A process is stopped by a signal or held by a debugger. Pure."""

from collections.abc import Iterator

from firstlight.core.report import Finding
from firstlight.diagnose.quotes import ESTABLISHED
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing


def stopped(scene: Scene) -> Iterator[Finding]:
    """Every process in state T or t: it does nothing until somebody lets it go on."""
    for one in scene.standings:
        if one.state == "T":
            yield _by_signal(one, scene.name(one.pid))
        elif one.state == "t":
            yield _by_debugger(one, scene.name(one.pid))


def _by_signal(one: Standing, name: str) -> Finding:
    return Finding(
        id="stopped_process",
        title=f"{name} is stopped by a signal",
        verdict=ESTABLISHED,
        pids=(one.pid,),
        evidence=(f"process {one.pid} is in state T (stopped)",),
        advice=(
            f"kill -CONT {one.pid} (SIGCONT) lets it go on.",
            "Find out who stopped it: SIGSTOP, Ctrl-Z, a debugger.",
        ),
    )


def _by_debugger(one: Standing, name: str) -> Finding:
    tracer = f"pid {one.look.tracer}" if one.look.tracer else "a process outside of this container"
    return Finding(
        id="traced_process",
        title=f"{name} is held by a debugger",
        verdict=ESTABLISHED,
        pids=(one.pid,),
        evidence=(f"process {one.pid} is in state t (traced) by {tracer}",),
        advice=(f"Let the debugger ({tracer}) continue or detach.",),
    )
