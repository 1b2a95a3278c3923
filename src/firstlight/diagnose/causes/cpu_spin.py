"""A process burns CPU in one place, in code that reads like waiting, or after a peer has gone."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose import quotes
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.ranks import meets_others
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import unseen_stacks

_WAITING_WORDS = re.compile(
    r"\b(while|pass|continue|wait|poll|spin|yield|sleep|is_set|ready|done|barrier)\b", re.IGNORECASE
)


def _spins(scene: Scene) -> Iterator[Sighting | Gap]:
    for one in scene.standings:
        if not one.spins:
            continue
        inner = " ".join(f"{frame.function} {frame.code}" for frame in one.stack[:3]).replace("_", " ")
        if scene.deaths or meets_others(one) or _WAITING_WORDS.search(inner):
            used = f" {one.change.why}" if one.change else ""
            yield Sighting(quotes.shortened(f"process {one.pid}{used}"), (one.pid,))
            yield Sighting(quotes.stack(one), (one.pid,))
    yield from unseen_stacks(scene)


CAUSE = Cause(
    id="cpu_spin",
    nature=Nature.SYMPTOM,
    title="{who} spins: it waits and burns CPU",
    clues=(supports("Does a process burn CPU in one place, in code that waits?", _spins),),
    advice=Advice(steps=("See what it waits for: a peer that is gone, or a flag that nobody sets.",)),
    traps=("One long computation looks alike from outside; the code of its place tells.",),
    each=True,
)
