"""A process is stopped by a signal: it does nothing until somebody lets it go on."""

from collections.abc import Iterator
from functools import partial

from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.stops import stopped

_FROZEN = "in the freezer of its control group"


def _frozen(scene: Scene) -> Iterator[Sighting]:
    """Whoever freezes a container stops all of it, without a signal."""
    for one in scene.standings:
        if one.frozen:
            yield Sighting(f"process {one.pid} is {_FROZEN}", (one.pid,))


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    return "{who} is frozen with its control group" if _is_frozen(seen) else "{who} is stopped by a signal"


def _is_frozen(seen: tuple[Sighting, ...]) -> bool:
    return any(one.quote.endswith(_FROZEN) for one in seen)


def _advice(_scene: Scene, seen: tuple[Sighting, ...]) -> Advice:
    if _is_frozen(seen):
        return Advice(
            steps=("Thaw it: docker unpause CONTAINER, or write 0 to cgroup.freeze of its control group.",),
            confirm=("cat /proc/{pid}/cgroup, then cgroup.freeze (v1: freezer.state) of that group.",),
        )
    return Advice(
        steps=(
            "kill -CONT {pid} (SIGCONT) lets it go on.",
            "Find out who stopped it: SIGSTOP, Ctrl-Z, a debugger.",
        )
    )


CAUSE = Cause(
    id="stopped_process",
    nature=Nature.HELD,
    title=_title,
    clues=(
        decides(
            "Is a process in state T that runs the server, or that others wait for?", partial(stopped, needed=True)
        ),
        decides("Is a process frozen with its control group?", _frozen),
    ),
    advice=_advice,
    each=True,
    evident=True,
)
