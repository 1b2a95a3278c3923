"""The port that the server wants belongs to somebody else."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Listener
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import last


def _by_a_known_process(scene: Scene) -> Iterator[Sighting | Gap]:
    """A listener on the server's port that is none of the server's processes."""
    for one in scene.foreign_listeners[:1]:
        if one.pid:
            yield Sighting(f"{_listens(one)}, and is not part of this server", (one.pid,), str(one.port))
    yield from _unseen(scene)


def _by_somebody(scene: Scene) -> Iterator[Sighting | Gap]:
    for one in scene.foreign_listeners[:1]:
        if not one.pid:
            yield Sighting(f"{_listens(one)}; it may be the server itself", what=str(one.port))
    yield from _unseen(scene)


def _unseen(scene: Scene) -> Iterator[Gap]:
    look = last(scene)
    if look and isinstance(look.listeners, Gap):
        yield look.listeners


def _listens(listener: Listener) -> str:
    owner = f"pid {listener.pid}" if listener.pid else "a process that could not be seen"
    return shortened(f"{owner} listens on {listener.host} port {listener.port}")


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    taken = (
        f"is already taken by pid {seen[0].pids[0]}"
        if seen[0].pids
        else "may be taken by a process that could not be seen"
    )
    return f"port {{what}} {taken}"


CAUSE = Cause(
    id="port_in_use",
    nature=Nature.MACHINE,
    title=_title,
    clues=(
        decides("Does a process that is none of the server's listen on its port?", _by_a_known_process),
        supports("Does somebody who could not be seen listen on its port?", _by_somebody),
        foresees("Does a process listen on the port already?", _by_a_known_process, surely=True),
        foresees("Does somebody who could not be seen listen on the port already?", _by_somebody),
    ),
    advice=Advice(
        steps=("Choose another port, or end the process that holds it if an earlier run left it behind.",),
        confirm=("ss -ltnp 'sport = :{what}' shows who listens.",),
    ),
)
