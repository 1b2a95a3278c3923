"""Most ranks wait where they meet, and some are elsewhere. Pure."""

from collections.abc import Iterator

from firstlight.core.report import Finding
from firstlight.diagnose import quotes
from firstlight.diagnose.names import numbers
from firstlight.diagnose.quotes import SUPPORTED
from firstlight.diagnose.ranks import Group, minority
from firstlight.diagnose.scene import Scene


def elsewhere(scene: Scene) -> Iterator[Finding]:
    """The ranks that are not where the others wait for them are the suspects; the majority is only the scene."""
    suspects = minority(scene.groups)
    if not suspects:
        return
    waiting = [group for group in scene.groups if group.together and not group.first.stopped]
    met = [one for group in waiting for one in group.members]
    missing = scene.names.all([one.pid for one in suspects])
    verb = "waits" if len(met) == 1 else "wait"
    yield Finding(
        id="rank_elsewhere",
        title=f"{len(met)} of {len(met) + len(suspects)} ranks {verb} for {missing}, which never came",
        verdict=SUPPORTED,
        pids=tuple(one.pid for one in suspects),
        evidence=(*map(_group, waiting[:3]), *map(quotes.stack, suspects[:4])),
        advice=("Find out why it took another way: other options, another branch, a slow or stuck step before.",),
    )


def _group(group: Group) -> str:
    ranks = [one.rank for one in group.members if one.rank >= 0]
    who = numbers(ranks) if len(ranks) == len(group.members) else f"{len(group.members)} processes"
    return quotes.chain(f"{who}: ", group.first.place.frames) if group.first.place else f"{who}: no Python stack"
