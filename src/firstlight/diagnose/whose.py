"""On which machine something was seen, where a bundle is of several. Pure."""

from collections.abc import Iterable

from firstlight.core.words import printable
from firstlight.diagnose.clues import Sighting
from firstlight.diagnose.names import listed
from firstlight.diagnose.scene import Scene

_NAME_MAX = 60
_NAMED = 3
"""Machines that are told by name; the others are counted."""


def machine(scene: Scene) -> str:
    """The name of the machine that a scene is of; empty for one of all machines, or where there is but one."""
    return printable(scene.bundle.host.name, _NAME_MAX) if scene.over else ""


def placed(seen: Sighting, scene: Scene) -> Sighting:
    """A fact of a machine with its name in front; of processes their own names tell it."""
    name = machine(scene)
    return seen._replace(quote=f"{name}: {seen.quote}") if name and not seen.pids else seen


def located(title: str, scenes: Iterable[Scene]) -> str:
    """What was found, and on which machines, where the words do not say it yet."""
    names = [name for scene in scenes if (name := machine(scene))]
    if not names or all(f" on {name}" in title for name in names):
        return title
    more = len(names) - _NAMED
    return f"{title} on {listed([*names[:_NAMED], *([f'{more} more'] if more > 0 else [])])}"
