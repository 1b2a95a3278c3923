"""The system does not let the server write, or use, a path: it is another user's, or mounted read-only."""

from collections.abc import Iterator
from posixpath import dirname

from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.failures import Kind, ended, failed, failures
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene


def _known(scene: Scene) -> Iterator[Sighting]:
    """Somebody ended as a path was refused, and the folder that it lies in is known not to be writable."""
    folders = {one.path.rstrip("/") for one in scene.bundle.host.places if one.there and not one.writable}
    for one in failures(scene):
        path = one.what.rstrip("/")
        if one.kind is Kind.PERMISSION and path and {path, dirname(path).rstrip("/")} & folders:
            yield one.sighting
            yield Sighting(shortened(f"{dirname(path)} is not writable for this user"), what=one.what)
            yield ended(one.end)


def _told(scene: Scene) -> Iterator[Sighting]:
    yield from failed(scene, Kind.PERMISSION)


CAUSE = Cause(
    id="not_writable",
    nature=Nature.MACHINE,
    title="the server may not use {what}",
    clues=(
        decides("Did a process end as a path was refused that is not writable?", _known),
        supports("Did a process end as a path was refused?", _told),
    ),
    advice=Advice(
        confirm=("ls -ld {what} and the folder around it; id tells as whom the server runs.",),
        work_around=("Caches elsewhere: HOME, XDG_CACHE_HOME, HF_HOME, VLLM_CACHE_ROOT, TRITON_CACHE_DIR.",),
        repair=("Give the folder to the user that the server runs as (chown), or mount it read-write.",),
    ),
    traps=("A user without a home (HOME=/) makes every cache land in /, where only root may write.",),
)
