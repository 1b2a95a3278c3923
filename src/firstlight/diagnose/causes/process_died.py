"""The server's first process, a front, an engine, or a process that crashed, has ended."""

from collections.abc import Iterator

from firstlight.diagnose import deaths
from firstlight.diagnose.clues import Cause, Nature, Sighting, decides
from firstlight.diagnose.scene import Scene


def _missed(scene: Scene) -> Iterator[Sighting]:
    """The first of the ends that matter is not that of a rank."""
    if scene.missed and not scene.is_rank(scene.deaths[0]):
        yield from deaths.the_end(scene)


CAUSE = Cause(
    id="process_died",
    nature=Nature.DEATH,
    title=deaths.title,
    clues=(decides("Did a process end without which the server cannot be?", _missed),),
    advice=deaths.advice,
    traps=("What other processes print afterwards, a lost connection or a timeout, follows from the first end.",),
)
