"""The model comes or goes over the network: a download, or tensors sent to another machine. It moves."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Phase
from firstlight.core.words import size
from firstlight.diagnose import network, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides
from firstlight.diagnose.devices import runners
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene

FLOW_BYTES_S = 65_536
"""Bytes a second over one connection from which a model moves, rather than heartbeats."""
_BEFORE_SERVING = frozenset({Phase.SPAWN, Phase.IMPORT, Phase.CONFIG, Phase.WEIGHTS, Phase.DRAFT_INIT})


def _flows(scene: Scene) -> Iterator[Sighting | Gap]:
    """Connections to other machines over which much has passed between the looks, while the model is loaded."""
    passed = where.seconds_between(scene)
    if not passed or scene.bundle.phase not in _BEFORE_SERVING or not runners(scene):
        return
    for one in network.connections(scene, "ESTABLISHED"):
        if network.is_own(scene, one.socket.peer_host):
            continue
        moved = _passed(scene, one)
        if isinstance(moved, Gap):
            yield moved
        elif moved >= FLOW_BYTES_S * passed:
            quote = f"{scene.name(one.pid)}: {size(moved)} in {passed:.0f} s, {one.words}"
            yield Sighting(shortened(quote), (one.pid,), network.joined(one.socket.peer_host, one.socket.peer_port))


def _passed(scene: Scene, one: network.Connection) -> int | Gap:
    """Bytes that passed over a connection between the looks, either way."""
    old = network.before(scene, one)
    sent = network.more(one.socket.sent_bytes, old.sent_bytes if old else 0)
    received = network.more(one.socket.received_bytes, old.received_bytes if old else 0)
    if isinstance(sent, Gap):
        return sent
    return received if isinstance(received, Gap) else sent + received


def _downloads(scene: Scene) -> Iterator[Sighting]:
    """A download's folder grows, and somebody is left who will use what it holds."""
    for folder, grew in where.grown(scene, "download") if runners(scene) else ():
        if grew > 0:
            yield Sighting(shortened(f"{folder.path} grew by {size(grew)} between the looks"), what=folder.path)


CAUSE = Cause(
    id="slow_network_load",
    nature=Nature.SLOW,
    title="the model moves over the network: it works, and takes long",
    clues=(
        decides("Does much pass over a connection to another machine while the model is loaded?", _flows),
        decides("Does a download grow?", _downloads),
    ),
    advice=Advice(
        confirm=("ss -tinp twice: bytes_received or bytes_acked of the connection grow.",),
        work_around=("Wait; or download first: hf download MODEL, with HF_HUB_ENABLE_HF_TRANSFER=1 or hf_xet.",),
        repair=("Keep the model on a disk of this machine and give the server its path.",),
    ),
)
