"""Options that this version of the engine does not support together, and does not refuse."""

from collections.abc import Iterator
from fnmatch import fnmatch
from typing import NamedTuple

from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, foresees, supports
from firstlight.diagnose.devices import version
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene


class Combination(NamedTuple):
    """Options that do not go together before version `until` of `engine`; * in a name stands for any ending. `source`
    tells of it."""

    engine: str
    until: tuple[int, ...]
    options: tuple[str, ...]
    source: str


KNOWN = (
    Combination(
        "sglang",
        (0, 4, 7),
        ("enable-dp-attention", "speculative-algo*"),
        "https://github.com/sgl-project/sglang/issues/6296",
    ),
)


def _given_together(scene: Scene) -> Iterator[Sighting]:
    """The combination was given, and the start ends in silence."""
    bundle = scene.bundle
    for one in KNOWN:
        if bundle.engine != one.engine or not version(bundle.engine_version):
            continue
        given = [_given(scene, name) for name in one.options]
        if version(bundle.engine_version) < one.until and all(given):
            together = " with ".join(f"--{name}" for name in given)
            yield Sighting(
                shortened(f"{bundle.engine} {bundle.engine_version}: {together} ({one.source})"), what=together
            )


def _given(scene: Scene, wanted: str) -> str:
    """The option as it was given; empty if it was not."""
    names = (name for name, _ in scene.bundle.options)
    return next((name for name in names if fnmatch(name, wanted)), "")


CAUSE = Cause(
    id="unsupported_combo",
    nature=Nature.DIVERGED,
    title="this version does not support {what}",
    clues=(
        supports("Were options given together that hang in this version?", _given_together),
        foresees("Were options given together that hang in this version?", _given_together),
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
