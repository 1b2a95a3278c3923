"""A connection was made that nobody accepts: the kernel shook hands, and whoever listens never came for it."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Look, OpenFile, Socket
from firstlight.diagnose import network, quotes, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import kernel_said, processes, unseen_waits
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.waits import Kind

_WAITS = {Kind.READ, Kind.POLL, Kind.WRITE, Kind.CONNECT}


def _unaccepted(scene: Scene) -> Iterator[Sighting | Gap]:
    """Somebody waits on a connection that has no other end, to a port of the server with connections that wait to be
    accepted, at both looks."""
    listening = _waiting_at(scene)
    for one, socket in _waiters(scene):
        port = socket.peer_port
        owners = [pid for pid in listening.get(port, ()) if pid != one.pid]
        if owners and not _accepted(scene, socket):
            backlog = f"{scene.name(owners[0])} listens on port {port} and does not accept"
            pids = (*owners, one.pid)
            yield Sighting(
                quotes.shortened(f"{backlog}: connections wait in its queue at both looks"), pids, str(port)
            )
            words = f"TCP {network.joined(socket.host, socket.port)} to port {port}"
            yield Sighting(quotes.shortened(f"{scene.name(one.pid)} waits on {words}, whose other end nobody has"))
    yield from unseen_waits(scene)


def _dropped(scene: Scene) -> Iterator[Sighting]:
    """Somebody's connection to a port of this machine is not answered, where others wait to be accepted: the queue is
    full, and the kernel drops what comes."""
    listening = _waiting_at(scene)
    for one in network.unanswered(scene):
        port = one.socket.peer_port
        if port in listening and network.is_own(scene, one.socket.peer_host):
            quote = f"{scene.name(one.pid)}: {one.words}; {scene.name(listening[port][0])} does not accept there"
            yield Sighting(quotes.shortened(quote), (*listening[port], one.pid), str(port))


def _flooded(scene: Scene) -> Iterator[Sighting]:
    """The kernel tells that more come to a port of the server than are accepted."""
    listens = {one.socket.port: one.pid for one in network.connections(scene, "LISTEN")}
    for one in kernel_said(scene, r"possible SYN flooding on port"):
        found = None if isinstance(one, Gap) else re.search(r"port (?:\S*:)?(\d+)\b", one.quote)
        if found and not isinstance(one, Gap) and int(found[1]) in listens:
            yield one._replace(pids=(listens[int(found[1])],), what=found[1])


def _waiters(scene: Scene) -> Iterator[tuple[Standing, Socket]]:
    """Who waits on a connection to this machine that was there at the first look already."""
    for one in scene.standings:
        old = where.before(scene, one.pid)
        if old is None or one.wait.kind not in _WAITS or one.moves:
            continue
        known = {file.target for file in old.files}
        for file in one.wait.files:
            if file.socket and file.target in known and _is_open(scene, file.socket):
                yield one, file.socket


def _is_open(scene: Scene, socket: Socket) -> bool:
    connected = socket.family != "unix" and socket.state == "ESTABLISHED"
    return connected and network.is_own(scene, socket.peer_host)


def _waiting_at(scene: Scene) -> dict[int, list[int]]:
    """Who listens on which ports, where connections waited to be accepted at both looks."""
    found: dict[int, list[int]] = {}
    for one in processes(scene):
        old = where.before(scene, one.process.id.pid)
        before = {file.target for file in (old.files if old else ()) if _queue(file)}
        for file in one.files:
            if file.socket and _queue(file) and file.target in before:
                found.setdefault(file.socket.port, []).append(one.process.id.pid)
    own = {one.process.id.pid for one in processes(scene)}
    for port, pid in _backlogs(scene.bundle.looks[0]) & _backlogs(scene.bundle.looks[-1]) if own else ():
        if pid in own and pid not in found.get(port, ()):
            found.setdefault(port, []).append(pid)
    return found


def _backlogs(look: Look) -> set[tuple[int, int]]:
    """Ports with clients that wait, and who listens there."""
    listeners = () if isinstance(look.listeners, Gap) else look.listeners
    return {(one.port, one.pid) for one in listeners if one.backlog > 0}


def _queue(file: OpenFile) -> int:
    """The connections that wait at a listener."""
    one = file.socket
    return one.unread if one and one.family != "unix" and one.state == "LISTEN" else 0


def _accepted(scene: Scene, socket: Socket) -> bool:
    """Whether a process of the server has the other end."""
    ends = (file.socket for one in processes(scene) for file in one.files if file.socket)
    return any((end.port, end.peer_port) == (socket.peer_port, socket.port) for end in ends)


CAUSE = Cause(
    id="accept_queue",
    nature=Nature.HELD,
    title="{who} does not accept the connections to port {what}",
    clues=(
        supports("Does somebody wait on a connection that its listener has not accepted?", _unaccepted),
        supports("Is a connection dropped where others wait to be accepted?", _dropped),
        supports("Does the kernel tell that more come to its port than are accepted?", _flooded),
    ),
    advice=Advice(
        steps=("Find out what keeps {who} from its accept loop: it listens, so connecting to it succeeds.",),
        confirm=("ss -ltnp: Recv-Q of a listener counts the connections that wait to be accepted.",),
    ),
    traps=("A connection that is established says nothing of the program behind it: the kernel answers for it.",),
)
