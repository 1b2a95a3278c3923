"""The hub answers, and does not give the model out: no right to it, no such model, no such file."""

from collections.abc import Iterator

from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.failures import Kind, failed
from firstlight.diagnose.scene import Scene


def _told(scene: Scene) -> Iterator[Sighting]:
    yield from failed(scene, Kind.HUB_REFUSES)


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    return f"the hub does not give out {'{what}' if any(one.what for one in seen) else 'the model'}"


CAUSE = Cause(
    id="hub_refused",
    nature=Nature.NETWORK,
    title=_title,
    clues=(supports("Did a process end as the hub refused, or did not know, what it asked for?", _told),),
    advice=Advice(
        confirm=("hf auth whoami; open the model's page as that user.",),
        repair=(
            "401 and 403: accept the model's terms on its page, and give a token that may read it (HF_TOKEN).",
            "404: check the spelling of name and revision; a folder on disk is named by its path.",
        ),
    ),
    traps=("A private model looks like one that does not exist to whoever has no right to it.",),
)
