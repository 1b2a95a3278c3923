"""Ranks use a network interface over which they cannot reach each other: a VPN, a bridge, one that is not there."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.host import Interface
from firstlight.core.vocabulary import Phase, Role
from firstlight.diagnose import network, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.deaths import first_end
from firstlight.diagnose.joining import MEETS, joins_unseen
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, lines, said, variables

_UNFIT = frozenset({"tunnel", "bridge", "virtual"})
_EXACT = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_BY_PREFIX = ("NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")
_OF_OTHERS = ("MSCCLPP_SOCKET_IFNAME", "FI_TCP_IFACE", "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include")
"""Of libraries that may be there and not be asked."""
_NETWORK = re.compile(r"[\d.]+/\d+")
"""What MPI also takes for an interface."""
_TOOK = re.compile(r"\busing (?:\[\d+\])?(?=[\w.@-]+:)", re.IGNORECASE)
_TAKEN = re.compile(r"(?:\[\d+\])?(?P<name>[\w.@-]+):[0-9a-fA-F.:%\w]+<\d+>")
"""NCCL's list of the interfaces that it uses, "[0]eth0:10.0.0.2<0>"."""
_UNASSIGNED = r"((cannot|can't) assign requested address|\bEADDRNOTAVAIL\b|errno:? 99\b)"
_NOT_OURS = rf"{_UNASSIGNED}.*\b(addr=|bind|listen)|\b(bind|listen)\w*\b.*{_UNASSIGNED}"
"""To listen, that is: whoever connects is told the same when no port is left to connect from."""
_ADDRESS = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
NO_ADDRESS_HERE = "no interface of this machine has the address"
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
    "> failed",
)
_NOT_FOUND = (
    r"unable to find address|no (socket )?interface found|interface .*not found|no such device|find interface"
)
_FELL_BACK = r"using the loopback address|falling back to (the )?loopback|loopback .{0,20}fallback"
_NO_MESH = r"connectFullMesh|timed out|refused|failed to connect"
_MET_ITSELF = r"remote=\[?(127\.|::1).*local=\[?(127\.|::1)|local=\[?(127\.|::1).*remote=\[?(127\.|::1)"
"""Gloo's account of a connection that failed."""
_JOINS = rf"{MEETS}|new_group|ncclCommInitRank|all_reduce|connectFullMesh|monitored_barrier"


def _missing(scene: Scene, exact: tuple[str, ...] = _EXACT) -> Iterator[Sighting | Gap]:
    """A variable names interfaces, and none of them is there and up."""
    seen = scene.bundle.host.interfaces
    if isinstance(seen, Gap):
        yield seen
        return
    up = [one.name for one in seen if one.up]
    for name, value in variables(scene).items():
        wanted = [word.strip() for word in value.split(",") if word.strip() and not _NETWORK.fullmatch(word.strip())]
        if name in exact and wanted and not set(wanted) & set(up):
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


def _named(scene: Scene) -> Iterator[tuple[str, str, list[Interface]]]:
    """Variables that name interfaces, and those of them that are up and have an address."""
    up = [one for one in network.interfaces(scene) if one.up and one.addresses]
    for name, value in variables(scene).items():
        words = [word.strip() for word in value.split(",")]
        if name in {*_EXACT, *_OF_OTHERS}:
            yield name, value, [one for one in up if one.name in words]
        elif name in _BY_PREFIX and value:
            yield name, value, [one for one in up if _matches(value, one.name)]


def _told_to_use_unfit(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks of several nodes join, and a variable leaves them loopback, a tunnel or a bridge alone."""
    unfit = {one.name for one in _nowhere(scene)}
    named = (
        Sighting(shortened(f"environment: {name}={value}, which means {_kinds(chosen)} alone"), what=value)
        for name, value, chosen in _named(scene)
        if chosen and unfit >= {one.name for one in chosen}
    )
    yield from both(named if network.node_count(scene) > 1 else (), _perhaps_joining(scene))


def _kinds(chosen: list[Interface]) -> str:
    return ", ".join(f"{one.name} ({one.kind})" for one in chosen[:4])


def _took_unfit(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks of several nodes join, and a library says that it uses nothing but loopback, a tunnel or a bridge."""
    unfit = {one.name for one in _nowhere(scene)}
    took = []
    for line in lines(scene.bundle) if network.node_count(scene) > 1 else ():
        names = {found["name"] for found in _TAKEN.finditer(line.message)} if _TOOK.search(line.message) else set()
        if names and names <= unfit:
            took.append(Sighting(shortened(f"log: {line.message}"), what=sorted(names)[0]))
    yield from both(took, _perhaps_joining(scene))


def _nowhere(scene: Scene) -> Iterator[Interface]:
    """Interfaces that lead to no other machine."""
    yield from (one for one in network.interfaces(scene) if one.kind == "loopback" or _is_unfit(scene, one))


def _is_unfit(scene: Scene, one: Interface) -> bool:
    """In a container the way out itself is virtual: only beside a real one does such an interface lead nowhere."""
    real = any(other.kind in {"ethernet", "infiniband"} and other.addresses for other in network.interfaces(scene))
    return one.kind in _UNFIT and (real or one.kind != "virtual")


def _not_ours(scene: Scene) -> Iterator[Sighting | Gap]:
    """The kernel refused a process to listen at an address, and no interface of this machine has it."""
    seen = scene.bundle.host.interfaces
    if isinstance(seen, Gap):
        yield seen
        return
    for told in said(scene, _NOT_OURS):
        address = next(iter(_ADDRESS.findall(told.quote)), "")
        if address and seen and not network.is_own(scene, address):
            yield told._replace(what=address)
            yield Sighting(f"{NO_ADDRESS_HERE}: {address}", what=address)


def _missing_while_joining(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_missing(scene), _joining(scene))


def _missing_unseen(scene: Scene) -> Iterator[Sighting | Gap]:
    """As above, where no stack was seen, and the phase alone tells that ranks join."""
    unseen = [one for one in scene.standings if one.rank >= 0 and where.main_place(one.look) is None]
    if unseen and scene.bundle.phase in {Phase.RENDEZVOUS, Phase.COMM_INIT}:
        yield from _missing(scene)


def _missing_and_told(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_missing(scene, (*_EXACT, *_OF_OTHERS)), said(scene, _NOT_FOUND))


def _own_name_is_loopback(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks of several nodes join, and a name that they were told means this machine alone."""
    names = (
        Sighting(shortened(f"the name {one.name} means {', '.join(one.addresses)}"), what=one.name)
        for one in scene.bundle.host.resolved
        if not isinstance(one.addresses, Gap) and one.addresses and all(map(network.is_loopback, one.addresses))
    )
    yield from both(names if network.node_count(scene) > 1 else (), _perhaps_joining(scene))


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
        yield from both(both(fell, said(scene, _NO_MESH)), _perhaps_joining(scene))


def _met_itself(scene: Scene) -> Iterator[Sighting]:
    """A rank of several nodes failed to connect from loopback to loopback."""
    if network.node_count(scene) > 1:
        yield from (one._replace(what="loopback") for one in said(scene, _MET_ITSELF))


def _joins_on_loopback(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks of several nodes join a group, and one of them knocks at loopback without an answer."""
    knocks = (one for one in _on_loopback(scene) if "SYN_SENT" in one.quote)
    yield from both(knocks, _perhaps_joining(scene))


def _joining(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from where.stands(scene, _JOINS)
    yield from where.stands(scene, "ncclCommInitRank|bootstrap|gloo::", native=True)


def _perhaps_joining(scene: Scene) -> Iterator[Sighting | Gap]:
    """As above, or by the log alone where no stack was seen."""
    yield from _joining(scene)
    yield from joins_unseen(scene)


def _unfit(scene: Scene) -> dict[str, Interface]:
    """Addresses of this machine by which other machines, and some libraries, cannot reach it."""
    return {
        network.normal(address.partition("/")[0]): one
        for one in network.interfaces(scene)
        if _is_unfit(scene, one)
        for address in one.addresses
    }


def _complained_and_ended(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log complains about such an address, and somebody ended."""
    yield from both(_complaints(scene), first_end(scene))


def _complained(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log complains about such an address, and somebody stands where ranks meet."""
    yield from both(_complaints(scene), _joining(scene))


def _complaints(scene: Scene) -> Iterator[Sighting]:
    unfit = _unfit(scene)
    for line in lines(scene.bundle):
        address = next((one for one in unfit if one in line.message), "")
        if address and any(word in line.message.lower() for word in _COMPLAINS):
            quote = f"{address} belongs to {unfit[address].name} ({unfit[address].kind}); log: {line.message}"
            yield Sighting(shortened(quote), what=unfit[address].name)


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
    up = [] if told else [one for one in network.interfaces(scene) if one.up and _is_unfit(scene, one)]
    quoted = [Sighting(shortened(f"interface {one.name} is up: a {one.kind}"), what=one.name) for one in up]
    yield from both(quoted, where.stands(scene, _MPI, native=True))


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if any(one.quote.startswith(NO_ADDRESS_HERE) for one in seen):
        return "a process was told to listen at {what}, which is no address of this machine"
    return "ranks use a network interface ({what}) over which they do not reach each other"


CAUSE = Cause(
    id="wrong_interface",
    nature=Nature.NETWORK,
    title=_title,
    clues=(
        decides("Does a variable name an interface that is not up, while ranks join?", _missing_while_joining),
        decides("Does a variable name an interface that is not up, and does the log say so?", _missing_and_told),
        decides("Does the log complain about an address of a tunnel or bridge where ranks meet?", _complained),
        decides("Did a rank of several nodes take loopback for want of another address?", _fell_back),
        decides("Was it refused to listen at an address that is none of this machine's?", _not_ours),
        supports("Does a variable name one that is not up, in the phase in which ranks join?", _missing_unseen),
        supports("Does it complain about such an address, and did somebody end?", _complained_and_ended),
        supports("Does a variable leave ranks of several nodes loopback, a tunnel or a bridge?", _told_to_use_unfit),
        supports("Does a library say that it uses loopback, a tunnel or a bridge alone?", _took_unfit),
        supports("Did a rank of several nodes take loopback, and did a group fail?", _others_fell_back),
        supports("Does a rank of several nodes knock at loopback?", _joins_on_loopback),
        supports("Did a rank of several nodes fail to connect from loopback to loopback?", _met_itself),
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
