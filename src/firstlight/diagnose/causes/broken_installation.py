"""A module, a shared library, a symbol or a program that the server needs is not there, or of another version."""

from collections.abc import Iterator

from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.failures import Kind, ended, failed, surely
from firstlight.diagnose.scene import Scene


def _surely(scene: Scene) -> Iterator[Sighting]:
    for one in surely(scene, Kind.INSTALLATION):
        if one.error.raised:
            yield one.sighting
            yield ended(one.end)


def _told(scene: Scene) -> Iterator[Sighting]:
    yield from failed(scene, Kind.INSTALLATION)


CAUSE = Cause(
    id="broken_installation",
    nature=Nature.MACHINE,
    title="the installation lacks {what}, or has another version of it",
    clues=(
        decides("Did a process end with its only error, that a module, library or symbol is missing?", _surely),
        supports("Did a process end as a module, library, symbol or program was missing?", _told),
    ),
    advice=Advice(
        confirm=("pip check; ldd on the library that was loaded; which -a python shows whose Python it is.",),
        repair=(
            "Install what is missing, or the engine anew with the versions that it asks for, in a fresh environment.",
        ),
    ),
    traps=(
        "A missing libcuda.so.1 is the driver's: the container was started without the GPUs (--gpus all).",
        "An undefined symbol is a library built against another version of torch: take wheels that go together.",
    ),
)
