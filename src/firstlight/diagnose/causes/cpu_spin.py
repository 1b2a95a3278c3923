"""A process burns CPU in one place, in code that reads like waiting, or after a peer has gone."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Phase
from firstlight.diagnose import quotes
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.devices import runners
from firstlight.diagnose.ranks import meets_others
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import gpus, unseen_stacks

_WAITING_WORDS = re.compile(
    r"\b(while|pass|continue|wait|poll|spin|yield|sleep|is_set|ready|done|barrier)\b", re.IGNORECASE
)


def _spins(scene: Scene) -> Iterator[Sighting | Gap]:
    for one in scene.standings:
        if not one.spins:
            continue
        told = [f"{frame.function} {frame.code}" for frame in one.stack[:3]] or one.words[:3]
        inner = " ".join(told).replace("_", " ")
        if scene.whole.deaths or meets_others(one) or _WAITING_WORDS.search(inner):
            used = f" {one.change.why}" if one.change else ""
            yield Sighting(quotes.shortened(f"process {one.pid}{used}"), (one.pid,))
            yield Sighting(quotes.stack(one), (one.pid,))
    yield from unseen_stacks(scene)


def _computes(scene: Scene) -> Iterator[Sighting]:
    """A server that should answer, and somebody who runs its model computes in one place in Python, with no GPU at
    work: whoever asks waits for that."""
    cards = gpus(scene)
    idle = not isinstance(cards, Gap) and all(
        isinstance(one.utilisation, float) and not one.utilisation for one in cards
    )
    if scene.bundle.phase is not Phase.SERVING or not scene.bundle.question or not idle:
        return
    for one in runners(scene):
        if one.spins and one.stack:
            used = f" {one.change.why}" if one.change else ""
            yield Sighting(quotes.shortened(f"process {one.pid}{used}"), (one.pid,), "computes")
            yield Sighting(quotes.stack(one), (one.pid,))


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if any(one.what == "computes" for one in seen):
        return "{who} computes in one place while others wait for its answer"
    return "{who} spins: it waits and burns CPU"


CAUSE = Cause(
    id="cpu_spin",
    nature=Nature.SYMPTOM,
    title=_title,
    clues=(
        supports("Does a process burn CPU in one place, in code that waits?", _spins),
        supports("Does whoever runs the model compute in one place, GPUs idle, while a request waits?", _computes),
    ),
    advice=Advice(steps=("See what it waits for: a peer that is gone, or a flag that nobody sets.",)),
    traps=("One long computation looks alike from outside; the code of its place tells.",),
    each=True,
)
