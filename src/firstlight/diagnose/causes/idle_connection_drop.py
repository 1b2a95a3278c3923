"""Something between two machines has dropped an idle connection: this side sends, and nothing is ever confirmed."""

import ipaddress
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import OpenFile, ProcessLook
from firstlight.core.vocabulary import Phase
from firstlight.core.words import size
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.devices import COLLECTIVE, some_in
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, processes

_WAITS = rf"{COLLECTIVE}|ncclSocket|recv_|TCPStore|gloo"


def _unconfirmed(scene: Scene) -> Iterator[Sighting | Gap]:
    """Bytes for another machine lie unconfirmed at both looks, and ranks wait for that machine."""
    if scene.bundle.phase is Phase.SERVING or scene.bundle.phase is Phase.WARMUP:
        yield from both(_unsent(scene), some_in(scene, _WAITS))


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


CAUSE = Cause(
    id="idle_connection_drop",
    nature=Nature.NETWORK,
    title="what is sent to {what} is not confirmed any more, though the connection looks open",
    clues=(supports("Do bytes for another machine stay unconfirmed while ranks wait for it?", _unconfirmed),),
    advice=Advice(
        confirm=("ss -tnoi on both machines: open here, unknown there; conntrack -L on what lies between.",),
        work_around=("net.ipv4.tcp_keepalive_time=120 with keep-alive on, or traffic before the limit passes.",),
        repair=("Exempt the ranks' traffic from the firewall's idle limit, or raise it.",),
    ),
    traps=("A machine that is down or stopped gives the same picture: ask whether the other side runs.",),
)
