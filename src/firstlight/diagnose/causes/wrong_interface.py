"""Ranks use a network interface over which they cannot reach each other: a VPN, a bridge, one that is not there."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.host import Interface
from firstlight.core.vocabulary import Role
from firstlight.diagnose import network, where
from firstlight.diagnose.causes.rendezvous_unreachable import MEETS
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, lines, said, variables

_UNFIT = frozenset({"tunnel", "bridge", "virtual"})
_EXACT = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_BY_PREFIX = ("NCCL_SOCKET_IFNAME",)
_MPI = r"MPI_Init|ompi_mpi_init"
_COMPLAINS = (
    "timed out",
    "time-out",
    "will retry",
    "unreachable",
    "no route",
    "refused",
    "failed to connect",
    "connectfull",
)
_NOT_FOUND = (
    r"unable to find address|no (socket )?interface found|interface .*not found|no such device|find interface"
)
_FELL_BACK = r"using the loopback address|falling back to (the )?loopback|loopback .{0,20}fallback"
_NO_MESH = r"connectFullMesh|timed out|refused|failed to connect"
_JOINS = rf"{MEETS}|new_group|ncclCommInitRank|all_reduce|connectFullMesh|monitored_barrier"


def _missing(scene: Scene) -> Iterator[Sighting | Gap]:
    """A variable names interfaces, and none of them is there and up."""
    seen = scene.bundle.host.interfaces
    if isinstance(seen, Gap):
        yield seen
        return
    up = [one.name for one in seen if one.up]
    for name, value in variables(scene).items():
        wanted = [word.strip() for word in value.split(",") if word.strip()]
        if name in _EXACT and wanted and not set(wanted) & set(up):
            yield Sighting(shortened(f"environment: {name}={value}, and only {', '.join(up)} are up"), what=value)
        if name in _BY_PREFIX and wanted and not any(_matches(value, one) for one in up):
            yield Sighting(shortened(f"environment: {name}={value}, and only {', '.join(up)} are up"), what=value)


def _matches(value: str, interface: str) -> bool:
    """NCCL's rule: prefixes, = in front for whole names, ^ for all but these."""
    words = value.lstrip("^=")
    exact = value.lstrip("^").startswith("=")
    names = [word for word in words.split(",") if word]
    fits = any(interface == word if exact else interface.startswith(word) for word in names)
    return fits is not value.startswith("^")


def _missing_while_joining(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_missing(scene), _joining(scene))


def _missing_and_told(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_missing(scene), said(scene, _NOT_FOUND))


def _own_name_is_loopback(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks of several nodes join, and a name that they were told means this machine alone."""
    names = (
        Sighting(shortened(f"the name {one.name} means {', '.join(one.addresses)}"), what=one.name)
        for one in scene.bundle.host.resolved
        if not isinstance(one.addresses, Gap) and one.addresses and all(map(network.is_loopback, one.addresses))
    )
    yield from both(names if network.node_count(scene) > 1 else (), _joining(scene))


def _on_loopback(scene: Scene) -> Iterator[Sighting]:
    """Sockets at which a rank of several nodes can be met by nobody but this machine: it listens on loopback, or
    knocks there."""
    if network.node_count(scene) < 2:
        return
    for one in (*network.connections(scene, "LISTEN"), *network.unanswered(scene)):
        host = one.socket.host if one.socket.state == "LISTEN" else one.socket.peer_host
        if network.is_loopback(host) and one.look.process.role is Role.WORKER:
            yield Sighting(shortened(f"{scene.name(one.pid)}: {one.words}"), (one.pid,), "loopback")


def _fell_back(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks of several nodes join a group, one is at loopback, and the log says that it was taken for want of
    another address."""
    yield from both(_on_loopback(scene), both(said(scene, _FELL_BACK), _joining(scene)))


def _others_fell_back(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks of several nodes join a group, and the log tells that some took loopback and that a group failed."""
    if network.node_count(scene) > 1:
        fell = (one._replace(what="loopback") for one in said(scene, _FELL_BACK))
        yield from both(both(fell, said(scene, _NO_MESH)), _joining(scene))


def _joins_on_loopback(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks of several nodes join a group, and one of them knocks at loopback without an answer."""
    knocks = (one for one in _on_loopback(scene) if "SYN_SENT" in one.quote)
    yield from both(knocks, _joining(scene))


def _joining(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from where.stands(scene, _JOINS)
    yield from where.stands(scene, "ncclCommInitRank|bootstrap|gloo::", native=True)


def _unfit(scene: Scene) -> dict[str, Interface]:
    """Addresses of this machine by which other machines, and some libraries, cannot reach it."""
    return {
        network.normal(address.partition("/")[0]): one
        for one in network.interfaces(scene)
        if one.kind in _UNFIT
        for address in one.addresses
    }


def _complained(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log complains about such an address, and somebody stands where ranks meet."""
    unfit = _unfit(scene)
    found = []
    for line in lines(scene.bundle):
        address = next((one for one in unfit if one in line.message), "")
        if address and any(word in line.message.lower() for word in _COMPLAINS):
            quote = f"{address} belongs to {unfit[address].name} ({unfit[address].kind}); log: {line.message}"
            found.append(Sighting(shortened(quote), what=unfit[address].name))
    yield from both(found, _joining(scene))


def _uses(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process that stands where ranks meet listens at such an address, or knocks there."""
    unfit = _unfit(scene)
    found = []
    for one in (*network.connections(scene, "LISTEN"), *network.unanswered(scene)):
        address = next(
            (host for host in (one.socket.host, one.socket.peer_host) if network.normal(host) in unfit), ""
        )
        if address:
            interface = unfit[network.normal(address)]
            quote = f"{scene.name(one.pid)}: {one.words}, on {interface.name} ({interface.kind})"
            found.append(Sighting(shortened(quote), (one.pid,), interface.name))
    yield from both(found, _joining(scene))


def _mpi(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process stands in MPI's start, interfaces are up that lead nowhere, and MPI was not told which to take."""
    told = any(name.startswith(("OMPI_MCA_btl_tcp_if", "OMPI_MCA_oob_tcp_if")) for name in variables(scene))
    up = [] if told else [one for one in network.interfaces(scene) if one.up and one.kind in _UNFIT]
    quoted = [Sighting(shortened(f"interface {one.name} is up: a {one.kind}"), what=one.name) for one in up]
    yield from both(quoted, where.stands(scene, _MPI, native=True))


CAUSE = Cause(
    id="wrong_interface",
    nature=Nature.NETWORK,
    title="ranks use a network interface ({what}) over which they do not reach each other",
    clues=(
        decides("Does a variable name an interface that is not up, while ranks join?", _missing_while_joining),
        decides("Does a variable name an interface that is not up, and does the log say so?", _missing_and_told),
        decides("Does the log complain about an address of a tunnel or bridge where ranks meet?", _complained),
        decides("Did a rank of several nodes take loopback for want of another address?", _fell_back),
        supports("Did a rank of several nodes take loopback, and did a group fail?", _others_fell_back),
        supports("Does a rank of several nodes knock at loopback?", _joins_on_loopback),
        supports("Does a process that joins use an address of a tunnel or bridge?", _uses),
        supports("Do ranks of several nodes join by a name that means loopback?", _own_name_is_loopback),
        supports("Does MPI start amid interfaces that lead nowhere?", _mpi),
        foresees("Does a variable name an interface that is not up?", _missing, surely=True),
    ),
    advice=Advice(
        confirm=("ip -br address; NCCL_DEBUG=INFO names the interface that NCCL took.",),
        work_around=(
            "One machine: VLLM_HOST_IP=127.0.0.1, GLOO_SOCKET_IFNAME=lo, OMPI_MCA_btl_tcp_if_include=lo.",
            (
                "Several: NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME with the name of the interface between them, "
                "VLLM_HOST_IP with its address on each."
            ),
        ),
        repair=("Take the VPN down, or keep it out of the default route: addresses are found by it.",),
    ),
    traps=("vLLM takes the address of whatever leads to the internet: with a VPN up, the tunnel's.",),
)
