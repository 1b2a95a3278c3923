"""Most ranks wait where they meet, and some are elsewhere: those are the suspects, the majority is only the scene."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose import quotes
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.names import numbers
from firstlight.diagnose.ranks import Group, minority
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import unseen_stacks


def _elsewhere(scene: Scene) -> Iterator[Sighting | Gap]:
    suspects = minority(scene.groups)
    if suspects:
        yield from (Sighting(_group(group)) for group in _waiting(scene)[:3])
        told = {one.pid for one in suspects[:4]}
        for one in suspects:
            yield Sighting(quotes.stack(one) if one.pid in told else f"so does {scene.name(one.pid)}", (one.pid,))
    yield from unseen_stacks(scene)


def _waiting(scene: Scene) -> list[Group]:
    return [group for group in scene.groups if group.together and not group.first.stopped]


def _group(group: Group) -> str:
    ranks = [one.rank for one in group.members if one.rank >= 0]
    who = numbers(ranks) if len(ranks) == len(group.members) else f"{len(group.members)} processes"
    return quotes.chain(f"{who}: ", group.first.place.frames) if group.first.place else f"{who}: no Python stack"


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    missing = {pid for one in seen for pid in one.pids}
    met = sum(len(group.members) for group in _waiting(scene))
    verb = "waits" if met == 1 else "wait"
    return f"{met} of {met + len(missing)} ranks {verb} for {{who}}, which never came"


CAUSE = Cause(
    id="rank_elsewhere",
    nature=Nature.SYMPTOM,
    together=True,
    title=_title,
    clues=(supports("Do most ranks wait where they meet while others are elsewhere?", _elsewhere),),
    advice=Advice(
        steps=("Find out why it took another way: other options, another branch, a slow or stuck step before.",)
    ),
    traps=("The ranks that wait are not at fault, though the timeout will name their collective.",),
)
