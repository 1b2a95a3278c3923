"""A program that the server ran failed after a while; whether the server needed it is not known."""

from collections.abc import Iterator

from firstlight.diagnose import deaths
from firstlight.diagnose.clues import Cause, Nature, Sighting, supports
from firstlight.diagnose.scene import Scene


def _failed(scene: Scene) -> Iterator[Sighting]:
    """An end that nobody is known to miss."""
    if scene.deaths and not scene.missed:
        yield from deaths.the_end(scene)


CAUSE = Cause(
    id="program_failed",
    nature=Nature.SYMPTOM,
    together=True,
    title=deaths.title,
    clues=(supports("Did a program fail that the server ran?", _failed),),
    advice=deaths.advice,
    traps=("Servers run many small programs that may fail; nobody misses most of them.",),
)
