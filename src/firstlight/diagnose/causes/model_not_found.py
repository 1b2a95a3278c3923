"""The model is named by a path, and nothing is there."""

import re
from collections.abc import Iterator

from firstlight.core.host import Place
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.failures import Kind, ended, failures
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene

_HUB_FOLDER = re.compile(r"models--[^/]*")
"""The folder of a model in the hub's cache, which is made when it is fetched."""
_RUNS_HERE = re.compile(r"(.*/)?(python[\d.]*|vllm|sglang|firstlight)")
"""Programs that open the path themselves; others may hand it on to a container or to another machine."""


def _missing(scene: Scene) -> Iterator[Place]:
    for one in scene.bundle.host.places:
        if one.purpose == "weights" and not one.there and not _HUB_FOLDER.fullmatch(one.path.rpartition("/")[2]):
            yield one


def _here(scene: Scene) -> bool:
    return bool(scene.bundle.command) and _RUNS_HERE.fullmatch(scene.bundle.command[0]) is not None


def _surely(scene: Scene) -> Iterator[Sighting]:
    """The engine itself would look for the path here."""
    if _here(scene):
        yield from _told(scene)


def _perhaps(scene: Scene) -> Iterator[Sighting]:
    """Something stands in front of the engine, which may see other files."""
    if not _here(scene):
        yield from _told(scene)


def _ended_by_it(scene: Scene) -> Iterator[Sighting]:
    """A process ended as it did not find a path in the folder of the model, and that is not there."""
    missing = [one.path.rstrip("/") for one in _missing(scene)]
    for one in failures(scene):
        if one.kind is Kind.PATH and any(f"{one.what}/".startswith(f"{path}/") for path in missing):
            yield one.sighting
            yield Sighting(shortened(f"{one.what} does not exist"), what=one.what)
            yield ended(one.end)


def _not_found(scene: Scene) -> Iterator[Sighting]:
    """A process ended as it did not find a path that the command names."""
    words = {word.partition("=")[2] or word for word in scene.bundle.command if "/" in word}
    for one in failures(scene):
        if one.kind is Kind.PATH and any(f"{one.what}/".startswith(f"{word.rstrip('/')}/") for word in words):
            yield one.sighting
            yield ended(one.end)


def _told(scene: Scene) -> Iterator[Sighting]:
    for one in _missing(scene):
        yield Sighting(shortened(f"{one.path} does not exist"), what=one.path)


CAUSE = Cause(
    id="model_not_found",
    nature=Nature.MACHINE,
    title="there is no model at {what}",
    clues=(
        decides("Did a process end as it did not find the model, whose path is not there?", _ended_by_it),
        supports("Did a process end as it did not find a path that the command names?", _not_found),
        foresees("Does the path of the model not exist?", _surely, surely=True),
        foresees("Does it not exist here, though the engine may run elsewhere?", _perhaps),
    ),
    advice=Advice(
        confirm=("ls -l on the path and on the folder around it: a mount may be missing.",),
        repair=("Give the path of the model's folder, or the name that a hub has for it, without a slash in front.",),
    ),
)
