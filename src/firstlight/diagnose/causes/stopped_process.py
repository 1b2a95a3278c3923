"""A process is stopped by a signal: it does nothing until somebody lets it go on."""

from collections.abc import Iterator

from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides
from firstlight.diagnose.scene import Scene


def _stopped(scene: Scene) -> Iterator[Sighting]:
    for one in scene.standings:
        if one.state == "T":
            yield Sighting(f"process {one.pid} is in state T (stopped)", (one.pid,))


CAUSE = Cause(
    id="stopped_process",
    nature=Nature.HELD,
    title="{who} is stopped by a signal",
    clues=(decides("Is a process in state T?", _stopped),),
    advice=Advice(
        steps=(
            "kill -CONT {pid} (SIGCONT) lets it go on.",
            "Find out who stopped it: SIGSTOP, Ctrl-Z, a debugger.",
        )
    ),
    each=True,
    evident=True,
)
