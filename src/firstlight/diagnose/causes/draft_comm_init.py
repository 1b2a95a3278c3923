"""The drafter of speculative decoding makes or first uses a communicator of its own, and not all ranks get there."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, rules_out, supports
from firstlight.diagnose.devices import (
    COLLECTIVE,
    COMMUNICATOR,
    complete,
    elsewhere,
    in_place,
    quoted,
    unseen_places,
)
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both
from firstlight.diagnose.standing import Standing

_DRAFT = r"draft|eagle|nextn|(\b|_)mtp(\b|_)|medusa|dflash|lookahead|spec_(decode|worker)|speculative"
_MEETS = f"{COLLECTIVE}|{COMMUNICATOR}"


def _meets_in_draft(scene: Scene) -> tuple[Standing, ...]:
    drafting = set(in_place(scene, _DRAFT)) if complete(scene) else ()
    return tuple(one for one in in_place(scene, _MEETS) if one in drafting)


def _split(scene: Scene) -> Iterator[Sighting | Gap]:
    """Some ranks meet in the drafter, and others are not in the drafter."""
    there, others = _meets_in_draft(scene), elsewhere(scene, _DRAFT)
    yield from both(quoted(scene, there, _DRAFT), quoted(scene, others))
    yield from unseen_places(scene)


def _makes_one(scene: Scene) -> Iterator[Sighting | Gap]:
    """A communicator is made within the drafter, by some ranks and not by all."""
    making = set(in_place(scene, COMMUNICATOR))
    there = dict.fromkeys(one for one in _meets_in_draft(scene) if one in making)
    others = [one for one in (*_meets_in_draft(scene), *elsewhere(scene, _DRAFT)) if one not in there]
    yield from both(quoted(scene, there, COMMUNICATOR), quoted(scene, others))
    yield from unseen_places(scene)


def _without(scene: Scene) -> Iterator[Sighting]:
    """The server was started without speculative decoding, and nobody is in such code."""
    given = [name for name, _ in scene.bundle.options if name.startswith("speculative")]
    seen = any(one.words for one in scene.standings)
    if scene.bundle.options and seen and not given and not in_place(scene, _DRAFT):
        yield Sighting("no option of speculative decoding was given")


CAUSE = Cause(
    id="draft_comm_init",
    nature=Nature.DIVERGED,
    together=True,
    title="{who} meets other ranks within the drafter, and they are elsewhere",
    clues=(
        supports("Do some ranks meet in the drafter while others are elsewhere?", _split),
        supports("Is a communicator made within the drafter, by some ranks only?", _makes_one),
        rules_out("Was the server started without speculative decoding?", _without),
    ),
    advice=Advice(
        confirm=("Start once without speculative decoding: leave out every --speculative-* option.",),
        work_around=("Speculation without --enable-dp-attention, or data-parallel attention without speculation.",),
        repair=("Update the engine; report which ranks enter the drafter and which do not.",),
    ),
    traps=("/health goes on answering: only a token proves that the ranks move.",),
)
