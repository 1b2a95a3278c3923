"""A module, a shared library, a symbol or a program that the server needs is not there, or of another version."""

import re
from collections.abc import Iterator

from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.failures import Kind, ended, failed, surely
from firstlight.diagnose.scene import Scene

_BY_LOADER = re.compile(r"^(?:\w+\.){0,8}(?:ModuleNotFoundError|ImportError|PackageNotFoundError|OSError)\b")
"""Raised by whoever loads. Others may tell of a module as well; one without an attribute may be no fault of its own,
and a name that a program could have may be that of a file or a folder."""


def _surely(scene: Scene) -> Iterator[Sighting]:
    """The exception of a loader ended it, of which nobody else told."""
    for one in surely(scene, Kind.INSTALLATION):
        if one.error.raised and _BY_LOADER.search(one.message):
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
