"""Addresses, connections and proxies in a bundle: what the causes of the network share. Pure."""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.host import Interface
from firstlight.core.look import OpenFile, ProcessLook, Socket
from firstlight.diagnose import where
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import processes, variables

WEB_PORTS = frozenset({80, 443})
ANY = frozenset({"0.0.0.0", "::", "*", ""})
_HOST_PORT = re.compile(r"(?:[a-z]+://)?(?:\[([0-9a-fA-F:.%]+)\]|([^:\s/\[\]]+))(?::(\d{1,5}))?/?", re.IGNORECASE)
_MEETING_OPTIONS = (
    (("dist-init-addr", "nccl-init-addr"), ()),
    (("master-addr",), ("master-port",)),
    (("data-parallel-address", "dpa"), ("data-parallel-rpc-port", "dpp")),
    (("rdzv-endpoint", "distributed-init-method", "dist-init-method"), ()),
)
_MEETING_VARIABLES = (("MASTER_ADDR", "MASTER_PORT"), ("VLLM_DP_MASTER_IP", "VLLM_DP_MASTER_PORT"))
_SERVICE_OPTIONS = ("rpc", "address")
"""Of llama.cpp's servers that compute for it, and of Ray's head."""
_SERVICE_VARIABLES = (
    "RAY_ADDRESS",
    "ETCD_ENDPOINTS",
    "NATS_SERVER",
    "NCCL_COMM_ID",
    "PET_RDZV_ENDPOINT",
    "JAX_COORDINATOR_ADDRESS",
)


class Connection(NamedTuple):
    """A socket of a process of the server."""

    look: ProcessLook
    file: OpenFile
    socket: Socket

    @property
    def pid(self) -> int:
        return self.look.process.id.pid

    @property
    def words(self) -> str:
        """The connection as people read it."""
        one = self.socket
        ends = (
            f"{joined(one.host, one.port)} -> {joined(one.peer_host, one.peer_port)}" if one.peer_port else one.host
        )
        return shortened(f"socket {ends} is {one.state}")


class Meeting(NamedTuple):
    """Where ranks were told to meet; port 0 if that was not told. `told` quotes who said so; a variable need not be
    what the engine goes by, an option is."""

    host: str
    port: int
    told: str
    by_option: bool = False


def connections(scene: Scene, *states: str) -> Iterator[Connection]:
    """TCP sockets of the server in one of these states."""
    for one in processes(scene):
        for file in one.files:
            if file.socket and file.socket.family != "unix" and file.socket.state in states:
                yield Connection(one, file, file.socket)


def before(scene: Scene, one: Connection) -> Socket | None:
    """The same connection at the first look; None if it is new."""
    earlier = where.before(scene, one.pid)
    sockets = (file.socket for file in (earlier.files if earlier else ()) if file.socket)
    return next((old for old in sockets if _ends(old) == _ends(one.socket)), None)


def sent(scene: Scene, look: ProcessLook, file: OpenFile) -> int:
    """How many bytes a TCP socket of a process has sent between the looks; 0 where that is not known."""
    if file.socket is None:
        return 0
    then = before(scene, Connection(look, file, file.socket))
    grown = more(file.socket.sent_bytes, then.sent_bytes) if then else 0
    return grown if isinstance(grown, int) else 0


def _ends(socket: Socket) -> tuple[str, int, str, int]:
    return socket.host, socket.port, socket.peer_host, socket.peer_port


def more(now: int | Gap, then: int | Gap) -> int | Gap:
    """What a counter grew by."""
    if isinstance(now, Gap):
        return now
    return then if isinstance(then, Gap) else now - then


def unanswered(scene: Scene) -> Iterator[Connection]:
    """Connections that are being made, and were not answered at the first look either."""
    for one in connections(scene, "SYN_SENT"):
        earlier = where.before(scene, one.pid)
        peers = {
            (file.socket.peer_host, file.socket.peer_port)
            for file in (earlier.files if earlier else one.look.files)
            if file.socket and file.socket.state == "SYN_SENT"
        }
        if (one.socket.peer_host, one.socket.peer_port) in peers:
            yield one


def joined(host: str, port: int) -> str:
    """An address as host:port, an IPv6 one in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parted(text: str) -> tuple[str, int]:
    """Host and port of an address as users write it; ("", 0) if it is none. A bare IPv6 address has no port."""
    word = text.strip()
    if _address(word) is not None:
        return normal(word), 0
    found = _HOST_PORT.fullmatch(word)
    return (normal(found[1] or found[2]), int(found[3] or 0)) if found else ("", 0)


def normal(host: str) -> str:
    """One way of writing for each address: no brackets, no zone, an IPv4 address in IPv6 clothes as IPv4."""
    bare = host.strip("[]").partition("%")[0].lower()
    address = _address(bare)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address or bare)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether an address means the machine itself."""
    address = _address(normal(host))
    return normal(host) == "localhost" or bool(address and address.is_loopback)


def is_public(host: str) -> bool:
    """Whether an address lies in the internet, rather than in this machine or a private network."""
    address = _address(normal(host))
    return bool(address and address.is_global)


def family(host: str) -> int:
    """4 or 6 of a literal address; 0 of a name."""
    address = _address(normal(host))
    return address.version if address else 0


def addresses(scene: Scene, host: str) -> frozenset[str]:
    """A literal address itself; of a name what the machine made of it."""
    if family(host):
        return frozenset({normal(host)})
    found = [one for one in scene.bundle.host.resolved if one.name.lower() == host.lower()]
    told = (one.addresses for one in found if not isinstance(one.addresses, Gap))
    return frozenset(normal(address) for addresses in told for address in addresses)


def interfaces(scene: Scene) -> tuple[Interface, ...]:
    found = scene.bundle.host.interfaces
    return () if isinstance(found, Gap) else found


def interface_of(scene: Scene, host: str) -> Interface | None:
    """The interface of this machine that has an address."""
    wanted = normal(host)
    return next(
        (one for one in interfaces(scene) if wanted in {normal(a.partition("/")[0]) for a in one.addresses}), None
    )


def is_own(scene: Scene, host: str) -> bool:
    """Whether an address is one of this machine's."""
    return is_loopback(host) or interface_of(scene, host) is not None


def node_count(scene: Scene) -> int:
    """How many machines the server was told to run on."""
    told = scene.bundle.option("nnodes")
    words = told[0] if told else ""
    return max(scene.bundle.nodes, int(words) if words.isdecimal() and len(words) < 6 else 1)


def meetings(scene: Scene) -> tuple[Meeting, ...]:
    """Where the ranks were told to meet: by options, or by variables where no option says it."""
    return tuple(dict.fromkeys(_by_options(scene))) or tuple(dict.fromkeys(_by_variables(scene)))


def _by_options(scene: Scene) -> Iterator[Meeting]:
    for names, ports in _MEETING_OPTIONS:
        for name in names:
            words = scene.bundle.option(name)
            if not words:
                continue
            host, port = parted(words[0])
            told = next((found[0] for key in ports if (found := scene.bundle.option(key))), "")
            if host:
                yield Meeting(host, port or _port(told), shortened(f"option: --{name} {words[0]}"), by_option=True)


def _by_variables(scene: Scene) -> Iterator[Meeting]:
    known = variables(scene)
    for name, port in _MEETING_VARIABLES:
        host = parted(known.get(name, ""))[0]
        if host:
            yield Meeting(host, _port(known.get(port, "")), shortened(f"environment: {name}={known[name]}"))


def services(scene: Scene) -> Iterator[Meeting]:
    """Whom the server was told to find beside the ranks' meeting: the head of a cluster, a registry, helpers."""
    known = variables(scene)
    told = [(f"option: --{name}", words) for name in _SERVICE_OPTIONS if (words := scene.bundle.option(name))]
    told += [(f"environment: {name}", (known[name],)) for name in _SERVICE_VARIABLES if known.get(name)]
    for name, words in told:
        for word in re.split(r"[,\s]+", " ".join(words))[:64]:
            host, port = parted(word)
            if host and port:
                yield Meeting(host, port, shortened(f"{name} {word}"))


def _port(word: str) -> int:
    return int(word) if word.isdecimal() and len(word) < 6 else 0


def leads_to(scene: Scene, socket: Socket, meeting: Meeting) -> bool:
    """Whether a connection goes to where the ranks were told to meet."""
    there = normal(socket.peer_host) in addresses(scene, meeting.host)
    return there and (socket.peer_port == meeting.port if meeting.port else socket.peer_port not in WEB_PORTS)


def proxies(scene: Scene) -> dict[str, str]:
    """The variables that send HTTP requests to a proxy."""
    wanted = re.compile(r"(?:https?|all)_proxy", re.IGNORECASE)
    return {name: value for name, value in variables(scene).items() if value and wanted.fullmatch(name)}


def plain_proxies(scene: Scene) -> dict[str, str]:
    """Those that a server's request to its own http:// address goes through."""
    return {name: value for name, value in proxies(scene).items() if not name.lower().startswith("https")}


def exceptions(scene: Scene) -> tuple[str, ...]:
    """The entries of no_proxy."""
    known = variables(scene)
    entries = (part for name in ("no_proxy", "NO_PROXY") for part in known.get(name, "").split(","))
    return tuple(entry.strip().lower() for entry in entries if entry.strip())


def bypassed(host: str, entries: Sequence[str]) -> bool:
    """Whether a request to `host` goes past the proxy, by the rules of requests and curl: a suffix of the name, an
    address, a network, or * for all."""
    name = normal(host)
    return any(
        entry == "*" or _in_network(name, entry) or name == parted(entry)[0] or name.endswith(f".{entry.lstrip('.')}")
        for entry in entries
    )


def _in_network(host: str, entry: str) -> bool:
    try:
        return "/" in entry and ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


def own_names(scene: Scene) -> tuple[str, ...]:
    """The hosts under which the server may ask itself: the one that it was told, and loopback for a wildcard."""
    told = scene.bundle.option("host")
    host = normal(told[0]) if told else "127.0.0.1"
    return (host, "127.0.0.1") if host in ANY else (host,)
