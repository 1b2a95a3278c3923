"""Processes that are stopped by a signal, and whether the server needs them. Pure."""

from firstlight.core.vocabulary import Role
from firstlight.diagnose.clues import Sighting
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing

_NEEDED = frozenset({Role.FRONT, Role.ENGINE, Role.WORKER})


def stopped(scene: Scene, *, needed: bool) -> list[Sighting]:
    """Those in state T that run the server or that others wait for, or with `needed` false all others."""
    return [
        Sighting(f"process {one.pid} is in state T (stopped)", (one.pid,))
        for one in scene.standings
        if one.state == "T" and _is_needed(scene, one) is needed
    ]


def _is_needed(scene: Scene, one: Standing) -> bool:
    process = one.look.process
    runs = process.role in _NEEDED or process.rank >= 0 or process.id == scene.root
    return runs or bool(scene.waiters_for((one.pid,)))
