"""One side speaks IPv6 and the other IPv4."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.diagnose import network, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, rules_out, supports
from firstlight.diagnose.failures import Kind, ended, failures
from firstlight.diagnose.joining import MEETS
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, lines, said

_SAYS = (
    r"ipv6\s*=\s*False|address family.*not supported|IPv6 network addresses .* cannot be retrieved|\bEAFNOSUPPORT\b"
)
_LOOPBACK = re.compile(r"(?P<host>::1|127\.0\.0\.1)\W{1,8}(port\W{1,3})?(?P<port>\d{2,5})\b")
_IPV4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
_LITERAL = re.compile(r"(?<![\w.:])(?:(?:\d{1,3}\.){3}\d{1,3}|(?=[\da-fA-F]{0,4}:[\da-fA-F:.]*:)[\da-fA-F:.]{2,45})")
_NO_WAY = re.compile(
    r"unreachable|no route|cannot assign requested|address family|\b(errno|os error)\W{0,3}(97|99|101|113)\b"
    r"|\bE(NETUNREACH|HOSTUNREACH|ADDRNOTAVAIL|AFNOSUPPORT)\b",
    re.IGNORECASE,
)
_BOTH = frozenset({"::", "*"})
"""Addresses that listen to both families, unless told otherwise."""


def _families(scene: Scene, host: str) -> set[int]:
    return {network.family(address) for address in network.addresses(scene, host)}


def _listening(scene: Scene) -> Iterator[tuple[str, int, int]]:
    """Who listens: host, port and pid."""
    look = scene.last
    listeners = look.listeners if look and not isinstance(look.listeners, Gap) else ()
    found = [(one.host, one.port, one.pid) for one in listeners]
    found += [(one.socket.host, one.socket.port, one.pid) for one in network.connections(scene, "LISTEN")]
    yield from dict.fromkeys(found)


def _mismatch(scene: Scene) -> Iterator[Sighting]:
    """The ranks were told to meet at an address of one family, and whoever listens on that port speaks the other.
    Somebody else may listen on the same port for the right one, out of sight: this decides nothing."""
    for meeting in network.meetings(scene):
        wanted = _families(scene, meeting.host)
        here = [(host, pid) for host, port, pid in _listening(scene) if meeting.port and port == meeting.port]
        spoken = {network.family(host) for host, _ in here} | ({4, 6} if any(h in _BOTH for h, _ in here) else set())
        if len(wanted) == 1 and here and spoken and not wanted & spoken:
            host, pid = here[0]
            yield Sighting(meeting.told, what=meeting.host)
            listens = f"{scene.name(pid)} listens on {network.joined(host, meeting.port)}"
            yield Sighting(shortened(listens), (pid,) if pid else ())


def _told_ipv6(scene: Scene) -> Iterator[Sighting]:
    for meeting in network.meetings(scene):
        if _families(scene, meeting.host) == {6}:
            yield Sighting(meeting.told, what=meeting.host)


def _all_ipv4(scene: Scene) -> Iterator[Sighting]:
    """Every TCP socket of the server is of IPv4."""
    sockets = list(network.connections(scene, "LISTEN", "ESTABLISHED", "SYN_SENT"))
    if sockets and {one.socket.family for one in sockets} == {"inet"}:
        yield Sighting(f"all of its {len(sockets)} TCP sockets are of IPv4", (sockets[0].pid,))


def _ipv4_only(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_told_ipv6(scene), _all_ipv4(scene))


def _told_and_said(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_told_ipv6(scene), said(scene, _SAYS))


def _refused_by_family(scene: Scene) -> Iterator[Sighting]:
    """The log says that an address of this machine refused a connection, and whoever listens on that port speaks the
    other family only; nobody is connected to it."""
    reached = {one.socket.peer_port for one in network.connections(scene, "ESTABLISHED")}
    for line in lines(scene.bundle):
        for found in _LOOPBACK.finditer(line.message) if "refused" in line.message.lower() else ():
            port, wanted = int(found["port"]), network.family(found["host"])
            here = [(host, pid) for host, listens, pid in _listening(scene) if listens == port]
            if (
                here
                and port not in reached
                and not any(host in _BOTH or network.family(host) == wanted for host, _ in here)
            ):
                host, pid = here[0]
                yield Sighting(shortened(f"log: {line.message}"), what=found["host"])
                yield Sighting(f"{scene.name(pid)} listens on {network.joined(host, port)}", (pid,) if pid else ())


def _host_ipv6(scene: Scene) -> Iterator[Sighting]:
    """The server is to listen at an IPv6 address."""
    told = scene.bundle.option("host")
    if told and network.family(told[0]) == 6:
        yield Sighting(shortened(f"option: --host {told[0]}"), what=told[0])


def _host_and_said(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_host_ipv6(scene), said(scene, r"address family.*not supported|\bEAFNOSUPPORT\b|errno:? 97\b"))


def _no_way_by_ipv4(scene: Scene) -> Iterator[Sighting]:
    """A process ended as no way led to an IPv4 address, and this machine has none but of IPv6."""
    own = [
        address.partition("/")[0]
        for one in network.interfaces(scene)
        if one.up and one.kind != "loopback"
        for address in one.addresses
    ]
    if not own or {network.family(one) for one in own} != {6}:
        return
    for one in failures(scene):
        source = one.error.frames[-1].source if one.error.frames else ""
        wanted = _IPV4.search(one.message) or _IPV4.search(source)
        if one.kind is Kind.UNREACHABLE and wanted:
            yield one.sighting._replace(what=wanted[0])
            yield Sighting(shortened(f"the addresses of this machine: {', '.join(own[:4])}"), what=wanted[0])
            yield ended(one.end)


def _has_family(scene: Scene, host: str) -> bool:
    """Whether this machine has an address of the family, by which another, or itself, can be reached."""
    loopback = network.is_loopback(host)
    own = [
        network.normal(address.partition("/")[0])
        for one in network.interfaces(scene)
        if one.up and (one.kind == "loopback") is loopback
        for address in one.addresses
    ]
    fit = (one for one in own if loopback or not one.startswith("fe80:") or host.startswith("fe80:"))
    return not network.interfaces(scene) or network.family(host) in {network.family(one) for one in fit}


def _no_such_family(scene: Scene) -> Iterator[Sighting]:
    """The log tells that no way leads to an address of a family of which this machine has none."""
    for line in lines(scene.bundle):
        if not _NO_WAY.search(line.message):
            continue
        literal = (network.normal(word) for word in _LITERAL.findall(line.message))
        wanted = next((word for word in literal if network.family(word) and not _has_family(scene, word)), "")
        if wanted:
            yield Sighting(shortened(f"log: {line.message}"), what=wanted)
            yield _own(scene, wanted)


def _meets_in_no_family(scene: Scene) -> Iterator[Sighting | Gap]:
    """The ranks are to meet at an address of a family of which this machine has none, and stand there."""
    for meeting in network.meetings(scene):
        families = {network.family(one) for one in network.addresses(scene, meeting.host)}
        if len(families) == 1 and not any(_has_family(scene, one) for one in network.addresses(scene, meeting.host)):
            told = (Sighting(meeting.told, what=meeting.host), _own(scene, meeting.host))
            yield from both(told, (*where.stands(scene, MEETS), *said(scene, _NO_WAY.pattern)))


def _own(scene: Scene, host: str) -> Sighting:
    own = [address for one in network.interfaces(scene) if one.up for address in one.addresses]
    return Sighting(shortened(f"the addresses of this machine: {', '.join(own[:6])}"), what=host)


def _connected(scene: Scene) -> Iterator[Sighting]:
    """A connection to the meeting place is made."""
    for meeting in network.meetings(scene):
        for one in network.connections(scene, "ESTABLISHED"):
            if network.leads_to(scene, one.socket, meeting):
                yield Sighting(shortened(f"{scene.name(one.pid)}: {one.words}"), (one.pid,))


CAUSE = Cause(
    id="ipv6",
    nature=Nature.NETWORK,
    title="the address {what} is of another family than the sockets: IPv6 here, IPv4 there",
    clues=(
        supports("Does whoever listens on the meeting's port speak the other family only?", _mismatch),
        supports("Is the meeting at an IPv6 address, and every socket of IPv4?", _ipv4_only),
        supports("Is it at an IPv6 address, and does the log say that IPv6 is not used?", _told_and_said),
        supports("Did a port refuse the family that whoever listens there does not speak?", _refused_by_family),
        supports("Is it to listen at an IPv6 address, and is that family not supported?", _host_and_said),
        supports("Did a process end as no way led to an IPv4 address, with IPv6 alone here?", _no_way_by_ipv4),
        supports("Does no way lead to an address of a family of which this machine has none?", _no_such_family),
        supports("Do ranks meet at an address of a family of which this machine has none?", _meets_in_no_family),
        rules_out("Is a connection to the meeting place made?", _connected),
    ),
    advice=Advice(
        confirm=("ss -ltnp shows the family that each socket listens to.",),
        work_around=(
            "Give the IPv4 address: --master-addr, --dist-init-addr, --data-parallel-address, MASTER_ADDR.",
        ),
        repair=(
            (
                "Write IPv6 addresses in brackets, [ADDRESS]:PORT, and set NCCL_SOCKET_FAMILY=AF_INET6; older "
                "versions of the engines do not speak it for every connection."
            ),
        ),
    ),
    traps=("localhost may mean ::1 first; 127.0.0.1 says what is meant.",),
)
