"""The command cannot be run: there is no such program, or it may not be executed."""

from collections.abc import Iterator

from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, foresees
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene


def _refused(scene: Scene) -> Iterator[Sighting]:
    """What the system would say to the command."""
    if scene.bundle.refused:
        yield Sighting(shortened(scene.bundle.refused), what=shortened(next(iter(scene.bundle.command), "")))


CAUSE = Cause(
    id="not_startable",
    nature=Nature.MACHINE,
    title="the command ({what}) cannot be run",
    clues=(foresees("Can the command's program not be run?", _refused, surely=True),),
    advice=Advice(
        confirm=("command -v {what}",),
        repair=("Check the spelling and the PATH, activate the virtual environment, or `chmod +x` the program.",),
    ),
)
