"""NCCL's network transport has failed or lost track: its own lines tell of errors on a link, and ranks wait on."""

from collections.abc import Iterator
from itertools import chain

from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.deaths import first_end
from firstlight.diagnose.devices import COLLECTIVE, COMMUNICATOR, some_in, unseen_and_still
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said, stands_in

_ERRORS = (
    r"NET/\w+.*(got completion.*(status|error)|async (fatal )?event|call to ibv_\w+ failed|unexpected)"
    r"|retry counter exceeded|NET/\w+ ?: .*request.*(slot|already in use)|NET/\w+.*completed with error"
    r"|NET/IB ?: unable to open device|socket\w*: wrong (magic|type)"
    r"|\bUCX\s+ERROR\b.*(retry|timed? ?out|unreachable|input/output|completion with error)"
    r"|nvshmem.*(ibrc|ibgda|transport).*(error|fail)"
)
_POLLS = r"ncclIb|ncclProxyProgress|ibv_poll_cq|mlx5_poll_cq|libibverbs"


def _errors(scene: Scene) -> Iterator[Sighting | Gap]:
    """NCCL tells of errors of its network transport, and ranks wait in it."""
    waiting = chain(some_in(scene, f"{COLLECTIVE}|{COMMUNICATOR}"), unseen_and_still(scene), first_end(scene))
    yield from both(said(scene, _ERRORS), waiting)


def _polls(scene: Scene) -> Iterator[Sighting | Gap]:
    """The same, with the proxy's thread seen at it."""
    yield from both(said(scene, _ERRORS), stands_in(scene, _POLLS, native=True))


CAUSE = Cause(
    id="nccl_transport_bug",
    nature=Nature.NETWORK,
    title="NCCL's network transport fails while ranks wait for it",
    clues=(
        supports("Does NCCL report errors of its transport while ranks wait, or has one ended?", _errors),
        supports("Does it, while its proxy polls the network card?", _polls),
    ),
    advice=Advice(
        confirm=(
            "NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=NET on every node; ibstat and the error counters of each port.",
            (
                "If it fails at once: ib_write_bw between the two cards with the same GID (NCCL_IB_GID_INDEX); on "
                "RoCE it must be one of the version and the network that both have (show_gids)."
            ),
            "NCCL_IB_DISABLE=1 (sockets, slow): if it then works for as long, the RDMA transport is at fault.",
        ),
        work_around=("NCCL_CROSS_NIC=0, one rail (NCCL_IB_HCA=…), or another version of NCCL.",),
        repair=(
            "Report it to NCCL with the proxy's request state from gdb: the fault may be in transport or firmware.",
        ),
    ),
    traps=(
        "A wrong magic word tells that a stranger has knocked at NCCL's port: a scanner, another job, a probe.",
        "A rank that died on another node gives the same errors here: look there first.",
    ),
)
