"""Something between two machines has dropped an idle connection: this side sends, and nothing is ever confirmed."""

import ipaddress
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import OpenFile, ProcessLook, Socket
from firstlight.core.vocabulary import Phase
from firstlight.core.words import size
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.devices import COLLECTIVE, some_in, unseen_and_still
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, kernel_said, processes, said

_SILENT = (
    r"^(?!.*\bconnect(ing)?\b).*\b(recv|read|send|write)\w*\b.{0,100}"
    r"(Connection timed out|ETIMEDOUT|(Errno|os error) 110\b)"
)
"""Of a connection, and not of the making of one."""
_CONNECTED = frozenset(Phase) - {Phase.SPAWN, Phase.IMPORT, Phase.CONFIG, Phase.RENDEZVOUS, Phase.COMM_INIT}
_WAITS = rf"{COLLECTIVE}|ncclSocket|recv_|TCPStore|gloo"


def _unconfirmed(scene: Scene) -> Iterator[Sighting | Gap]:
    """Bytes for another machine lie unconfirmed at both looks, and ranks wait for that machine, or all stand still
    where it could not be seen; in a phase in which their connections are long made."""
    if scene.bundle.phase in _CONNECTED:
        yield from both(_unsent(scene), (*some_in(scene, _WAITS), *unseen_and_still(scene)))


def _half_open(scene: Scene) -> Iterator[Sighting | Gap]:
    """Of two machines that were looked at, one holds a connection to a port of the other, whose server does not have
    its end; so it was at both looks, and ranks wait for each other."""
    if len(scene.bundle.hosts) > 1 and scene.bundle.phase in {Phase.SERVING, Phase.WARMUP}:
        yield from both(_without_other_end(scene), some_in(scene, _WAITS))


def _without_other_end(scene: Scene) -> Iterator[Sighting]:
    sockets = [file.socket for one in processes(scene) for file in one.files if file.socket]
    ends = {(one.host, one.port, one.peer_host, one.peer_port) for one in sockets}
    listened = {one.port for one in sockets if one.state == "LISTEN"}
    known = {one.host for one in sockets if one.state == "ESTABLISHED"}
    for pid, there in _held_to_far_ports(scene):
        other = (there.peer_host, there.peer_port, there.host, there.port)
        if there.peer_port in listened and there.peer_host in known and other not in ends:
            where = f"{there.peer_host}:{there.peer_port}"
            told = f"{scene.name(pid)} is connected to {where}, where nobody has the other end"
            yield Sighting(shortened(told), (pid,), where)


def _held_to_far_ports(scene: Scene) -> Iterator[tuple[int, Socket]]:
    """Connections to other machines that were there at both looks, with who has them."""
    before = {one.process.id: one for look in scene.bundle.looks[:1] for one in look.processes}
    for one in processes(scene):
        then = before.get(one.process.id)
        for file in one.files:
            there = file.socket
            if then and there and there.state == "ESTABLISHED" and _is_far(there.peer_host) and _same(then, file):
                yield one.process.id.pid, there


def _gone_silent(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log says that reading from or sending over a connection that was made timed out, as the kernel says it when
    nothing is confirmed for long; ranks wait."""
    yield from both(said(scene, _SILENT), some_in(scene, _WAITS))


def _drops_packets(scene: Scene) -> Iterator[Sighting | Gap]:
    """The kernel tells that it drops packets of connections that it has no room to remember."""
    if scene.bundle.phase in {Phase.SERVING, Phase.WARMUP}:
        yield from both(kernel_said(scene, r"nf_conntrack:.*table full"), some_in(scene, _WAITS))


def _unsent(scene: Scene) -> Iterator[Sighting]:
    before = {one.process.id: one for one in scene.bundle.looks[0].processes} if len(scene.bundle.looks) > 1 else {}
    for one in processes(scene):
        then = before.get(one.process.id)
        for file in one.files:
            if then and _stuck(file) and _same(then, file):
                socket = file.socket
                where = f"{socket.peer_host}:{socket.peer_port}" if socket else ""
                amount = size(socket.unsent) if socket else ""
                told = f"{scene.name(one.process.id.pid)}: {amount} for {where} not confirmed, at both looks"
                yield Sighting(shortened(told), (one.process.id.pid,), where)


def _stuck(file: OpenFile) -> bool:
    socket = file.socket
    return socket is not None and socket.state == "ESTABLISHED" and socket.unsent > 0 and _is_far(socket.peer_host)


def _is_far(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _same(then: ProcessLook, file: OpenFile) -> bool:
    return any(old.fd == file.fd and old.socket == file.socket for old in then.files)


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if any(one.what for one in seen):
        return "what is sent to {what} is not confirmed any more, though the connection looks open"
    return "something on the way to other machines has dropped a connection that looks open"


CAUSE = Cause(
    id="idle_connection_drop",
    nature=Nature.NETWORK,
    title=_title,
    clues=(
        supports("Do bytes for another machine stay unconfirmed while ranks wait for it?", _unconfirmed),
        supports("Did a connection that was made time out, for which ranks wait?", _gone_silent),
        supports("Is a connection between two machines open on one side alone?", _half_open),
        supports("Does the kernel drop packets for want of room for connections, while ranks wait?", _drops_packets),
    ),
    advice=Advice(
        confirm=("ss -tnoi on both machines: open here, unknown there; conntrack -L on what lies between.",),
        work_around=("net.ipv4.tcp_keepalive_time=120 with keep-alive on, or traffic before the limit passes.",),
        repair=("Exempt the ranks' traffic from the firewall's idle limit, or raise it.",),
    ),
    traps=("A machine that is down or stopped gives the same picture: ask whether the other side runs.",),
)
