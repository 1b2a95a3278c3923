"""Options that this version of the engine does not support together, and does not refuse."""

from collections.abc import Iterator
from fnmatch import fnmatch
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, foresees, supports
from firstlight.diagnose.devices import some_in, version
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both


class Combination(NamedTuple):
    """Options that do not go together before version `until` of `engine`, and hang where frames match `place`.

    * in the name of an option stands for any ending. `source` tells of it.
    """

    engine: str
    until: tuple[int, ...]
    options: tuple[str, ...]
    place: str
    source: str


KNOWN = (
    Combination(
        "sglang",
        (0, 4, 7),
        ("enable-dp-attention", "speculative-algo*"),
        r"draft|eagle|nextn|\bmtp\b|spec",
        "https://github.com/sgl-project/sglang/issues/6296",
    ),
)


def _stands_there(scene: Scene) -> Iterator[Sighting | Gap]:
    """The combination was given, and somebody stands where it shows."""
    for one in _given_together(scene):
        yield from both(one.seen, some_in(scene, one.combination.place))


def _foreseen(scene: Scene) -> Iterator[Sighting]:
    yield from (sighting for one in _given_together(scene) for sighting in one.seen)


class Given(NamedTuple):
    """A combination that was given, and the words for it."""

    combination: Combination
    seen: tuple[Sighting, ...]


def _given_together(scene: Scene) -> Iterator[Given]:
    bundle, number = scene.bundle, version(scene.bundle.engine_version)
    for one in KNOWN:
        given = [_given(scene, name) for name in one.options]
        if bundle.engine == one.engine and () < number < one.until and all(given):
            together = " with ".join(f"--{name}" for name in given)
            told = shortened(f"{bundle.engine} {bundle.engine_version}: {together} ({one.source})")
            yield Given(one, (Sighting(told, what=together),))


def _given(scene: Scene, wanted: str) -> str:
    """The option as it was given; empty if it was not."""
    names = (name for name, _ in scene.bundle.options)
    return next((name for name in names if fnmatch(name, wanted)), "")


CAUSE = Cause(
    id="unsupported_combo",
    nature=Nature.DIVERGED,
    title="this version does not support {what}",
    clues=(
        supports("Does somebody stand where options hang that were given together?", _stands_there),
        foresees("Were options given together that hang in this version?", _foreseen),
    ),
    advice=Advice(
        confirm=("Start once without one of the two.",),
        work_around=("Leave one of them out.",),
        repair=("Update the engine.",),
    ),
    traps=(
        "That a start goes well without an option makes it the trigger; the version tells whether it is the cause.",
    ),
)
