"""The engine, or the transformers that it uses, does not know this kind of model."""

from collections.abc import Iterator

from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.failures import Kind, ended, failed, surely
from firstlight.diagnose.scene import Scene


def _surely(scene: Scene) -> Iterator[Sighting]:
    for one in surely(scene, Kind.MODEL):
        yield one.sighting
        yield ended(one.end)


def _told(scene: Scene) -> Iterator[Sighting]:
    yield from failed(scene, Kind.MODEL)


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    return (
        f"this version does not know the model's architecture{' ({what})' if any(one.what for one in seen) else ''}"
    )


CAUSE = Cause(
    id="unsupported_model",
    nature=Nature.MACHINE,
    title=_title,
    clues=(
        decides("Did a process end with its only error, that the model's architecture is not known?", _surely),
        supports("Did a process end as the model's architecture was not known?", _told),
    ),
    advice=Advice(
        confirm=("grep -E 'architectures|model_type' config.json in the model's folder.",),
        work_around=("--trust-remote-code, where the model brings its own code and you trust it.",),
        repair=("A newer version of the engine, with the transformers that it asks for.",),
    ),
)
