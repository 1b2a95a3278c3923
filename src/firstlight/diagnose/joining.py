"""Where ranks meet over the network: who stands there, and who was told to meet at a loopback address. Pure."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Phase
from firstlight.diagnose import network, where
from firstlight.diagnose.clues import Sighting
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import lines

MEETS = (
    r"TCPStore|_create_c10d_store|(_tcp_)?rendezvous(_handler)? |init_process_group|init_distributed_environment"
    r"|create_tcp_store|StatelessProcessGroup|_env_rendezvous|next_rendezvous|etcd_\w*rendezvous|init_distributed "
    r"|initialize \S*/jax/_src/distributed|init \S*/(horovod|bagua)/|MPI_Init|connectFullMesh"
    r"|(init|connect\w*|wait_for_node|check_health|_init_gcs_client|get_node_to_connect_for_driver) \S*/ray/_private/"
)
MEETS_NATIVELY = (
    r"TCPStore|c10d::.*(Client|connect)|gloo::\S*(connect|rendezvous|Pair|Context)|PMIx?_|P?MPI_Init|GcsClient"
)
_TOLD_OF_STORE = re.compile(
    r"\bworld_size=(?P<size>\d{1,6})\b.*init_method=(?:tcp://)?(?P<host>\[[^\]\s]+\]|[^:\s]+):(?P<port>\d{1,5})\b"
)
"""A rank's own account of the group that it joins."""
_OF_ANOTHER = re.compile(r"\bip=(?P<host>[\da-fA-F.:]+)\)")
"""Ray's word for whose line it is, where it is not this machine's."""


def at_the_meeting(scene: Scene) -> Iterator[Sighting | Gap]:
    """Threads that stand where ranks meet, in Python or in a library."""
    yield from where.stands(scene, MEETS)
    yield from where.stands(scene, MEETS_NATIVELY, native=True)


def joins_unseen(scene: Scene) -> Iterator[Sighting]:
    """Ranks of several nodes of which no stack tells where they stand, while by the log they meet."""
    if scene.bundle.phase in {Phase.RENDEZVOUS, Phase.COMM_INIT} and network.node_count(scene) > 1:
        for one in scene.standings:
            if one.rank >= 0 and where.main_place(one.look) is None:
                yield Sighting(f"{scene.name(one.pid)} has no stack that was seen, in phase {scene.bundle.phase}")


def told_loopback(scene: Scene, *, by_option: bool = True) -> Iterator[Sighting]:
    """Several machines were told to meet at a loopback address, which is another place on each."""
    nodes = network.node_count(scene)
    for meeting in network.meetings(scene):
        if nodes > 1 and network.is_loopback(meeting.host) and meeting.by_option is by_option:
            quote = f"{meeting.told}, and the server runs on {nodes} nodes"
            yield Sighting(shortened(quote), what=meeting.host)


def told_by_ranks(scene: Scene) -> Iterator[Sighting]:
    """A rank says that it joins a group of more ranks than there are on this machine at a loopback address, and the
    server has other machines."""
    here = {one.rank for one in scene.standings if one.rank >= 0} | {one.rank for one in scene.ended if one.rank >= 0}
    for line in lines(scene.bundle) if here else ():
        told = _TOLD_OF_STORE.search(line.message) if not _OF_ANOTHER.search(line.text) else None
        if told and network.is_loopback(told["host"]) and int(told["size"]) > len(here):
            others = _other_machine(scene, int(told["size"]), told["port"])
            if others:
                yield Sighting(
                    shortened(f"log: {line.message}"), what=network.joined(told["host"], int(told["port"]))
                )
                yield Sighting(f"the group has {told['size']} ranks, {len(here)} of them on this machine; {others}")


def _other_machine(scene: Scene, size: int, port: str) -> str:
    """How it is known that ranks of the group are on another machine: those of a group of this machine alone may meet
    at loopback, and may not all be there yet."""
    nodes = network.node_count(scene)
    if nodes > 1 and size > scene.bundle.ranks:
        return f"the server runs on {nodes} nodes"
    there = (_OF_ANOTHER.search(line.text) for line in lines(scene.bundle) if port in line.text)
    host = next((one["host"] for one in there if one and not network.is_own(scene, one["host"])), "")
    return f"others are on {host}" if host and network.interfaces(scene) else ""
