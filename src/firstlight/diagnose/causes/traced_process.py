"""A process is held by a debugger."""

from collections.abc import Iterator

from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides
from firstlight.diagnose.scene import Scene


def _traced(scene: Scene) -> Iterator[Sighting]:
    for one in scene.standings:
        if one.state == "t":
            tracer = f"pid {one.look.tracer}" if one.look.tracer else "a process outside of this container"
            yield Sighting(f"process {one.pid} is in state t (traced) by {tracer}", (one.pid,), tracer)


CAUSE = Cause(
    id="traced_process",
    nature=Nature.HELD,
    title="{who} is held by a debugger",
    clues=(decides("Is a process in state t?", _traced),),
    advice=Advice(steps=("Let the debugger ({what}) continue or detach.",)),
    traps=("Whatever takes stacks holds a process for some milliseconds; a second look tells.",),
    each=True,
    evident=True,
)
