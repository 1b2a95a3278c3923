"""One of several processes that do the same work has ended, and the others wait for it."""

from collections.abc import Iterator

from firstlight.diagnose import deaths
from firstlight.diagnose.clues import Cause, Nature, Sighting, decides
from firstlight.diagnose.scene import Scene


def _missed(scene: Scene) -> Iterator[Sighting]:
    """The first of the ends that matter is that of a rank."""
    if scene.missed and scene.is_rank(scene.deaths[0]):
        yield from deaths.the_end(scene)


CAUSE = Cause(
    id="rank_died",
    nature=Nature.DEATH,
    title=deaths.title,
    clues=(decides("Did a rank end, before anybody else that is missed?", _missed),),
    advice=deaths.advice,
    traps=("What other ranks print afterwards, a lost connection or a timeout, follows from the first end.",),
)
