"""The address where ranks are to meet cannot be reached from here, or nobody is there."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import Phase, Role
from firstlight.diagnose import network, quotes, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, rules_out, supports
from firstlight.diagnose.failures import Kind as Refused
from firstlight.diagnose.failures import ended, failures
from firstlight.diagnose.joining import (
    MEETS,
    MEETS_NATIVELY,
    at_the_meeting,
    joins_unseen,
    told_by_ranks,
    told_loopback,
)
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, lines, processes, said
from firstlight.diagnose.waits import Kind

_HANDSHAKES = r"(startup_handshake|_?perform_handshakes?) \S*/vllm/v1/"
_SOME_JOINED = r"\b\d+/\d+ (clients|workers|nodes|ranks|members|peers)\b.{0,20}\bjoined"
_REFUSED = re.compile(
    r"refused|timed? ?out|unreachable|no route|(fail\w*|unable|cannot|could not) to connect", re.IGNORECASE
)
_NO_HEAD = (
    r"(fail\w*|unable|cannot|could ?n[o']t) to connect to.{0,20}"
    r"\b(GCS|head|master|leader|supervisor|scheduler|raylet|etcd|nats|coordinator)\b"
    r"|cannot connect to (the )?(GCS|head|master|leader|supervisor|scheduler|coordinator)\b"
)
"""Whoever brings the nodes of a cluster together, by what programs call it."""
_STORE_REFUSES = re.compile(
    r"(?:fail\w*|unable|cannot|could not) to connect to \W?(?P<host>[\w.:-]*\w)\W{1,4}(?:port\W{1,3})?"
    r"(?P<port>\d{2,5})\b.*(?:refused|timed? ?out|unreachable|no route|errno)",
    re.IGNORECASE,
)
_AWAITS_OTHERS = r"TCPStore::waitForWorkers"
_EARLY = frozenset({Phase.SPAWN, Phase.IMPORT, Phase.CONFIG, Phase.RENDEZVOUS, Phase.COMM_INIT})


def _knocks_where_told(scene: Scene) -> Iterator[Sighting]:
    """A connection to where the ranks were told to meet stays unanswered."""
    for meeting in (*network.meetings(scene), *network.services(scene)):
        for one in network.unanswered(scene):
            if network.leads_to(scene, one.socket, meeting):
                yield _quoted(scene, one)
                yield Sighting(meeting.told, what=_peer(one))


def _knocks_while_meeting(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process stands where ranks meet, and a connection of it to no web port stays unanswered."""
    places = (*where.at(scene, MEETS), *where.at(scene, MEETS_NATIVELY, native=True))
    standing = {there.pid for there in places if not isinstance(there, Gap)}
    knocking = [one for one in network.unanswered(scene) if one.socket.peer_port not in network.WEB_PORTS]
    found = (_quoted(scene, one) for one in knocking if one.pid in standing)
    yield from both(found, at_the_meeting(scene))


def _knocks_where_logged(scene: Scene) -> Iterator[Sighting]:
    """The log complains about an address, and a connection to it stays unanswered."""
    told = [line.message for line in lines(scene.bundle)]
    for one in network.unanswered(scene):
        host, port = one.socket.peer_host, one.socket.peer_port
        named = next((text for text in told if network.normal(host) in text and str(port) in text), "")
        if named and port not in network.WEB_PORTS:
            yield _quoted(scene, one)
            yield Sighting(shortened(f"log: {named}"))


def _knocks_unseen(scene: Scene) -> Iterator[Sighting]:
    """While ranks of several nodes meet, a connection to another machine and no web port stays unanswered, of a
    process of which no stack tells where it stands."""
    if scene.bundle.phase not in {Phase.RENDEZVOUS, Phase.COMM_INIT} or network.node_count(scene) < 2:
        return
    for one in network.unanswered(scene):
        away = one.socket.peer_port not in network.WEB_PORTS and not network.is_own(scene, one.socket.peer_host)
        if away and where.main_place(one.look) is None and one.look.process.role is not Role.HELPER:
            yield _quoted(scene, one)


def _refused_where_told(scene: Scene) -> Iterator[Sighting]:
    """The log tells that the place where the ranks are to meet refused, or did not answer; nobody is connected."""
    if scene.bundle.phase not in _EARLY or _files_unseen(scene):
        return
    for meeting in (*network.meetings(scene), *network.services(scene)):
        hosts = {meeting.host, *network.addresses(scene, meeting.host)}
        address = rf"({'|'.join(map(re.escape, sorted(hosts)))})\b.{{0,20}}\b{meeting.port}\b"
        told = (line.message for line in lines(scene.bundle) if _REFUSED.search(line.message))
        named = next((text for text in told if re.search(address, text)), "")
        made = network.connections(scene, "ESTABLISHED")
        if meeting.port and named and not any(network.leads_to(scene, one.socket, meeting) for one in made):
            yield Sighting(shortened(f"log: {named}"), what=network.joined(meeting.host, meeting.port))
            yield Sighting(meeting.told)


def _files_unseen(scene: Scene) -> bool:
    """Whether some process may not be looked into: its connections are then not seen either."""
    return any(isinstance(one.facts.environment, Gap) for one in processes(scene))


def _without_head(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log tells that the head of the cluster cannot be reached; a connection to another machine is not answered,
    or nobody is connected to the address that it names."""
    if scene.bundle.phase not in _EARLY or _files_unseen(scene):
        return
    told = list(said(scene, _NO_HEAD))
    made = {_peer(one) for one in network.connections(scene, "ESTABLISHED")}
    for one in told:
        named = re.search(r"\b([\w.-]+:\d{2,5})\b", one.quote.partition(" to ")[2])
        if named and named[1] not in made:
            yield one._replace(what=named[1])
    away = (one for one in network.unanswered(scene) if not network.is_own(scene, one.socket.peer_host))
    yield from both((_quoted(scene, one) for one in away if one.socket.peer_port not in network.WEB_PORTS), told)


def _quoted(scene: Scene, one: network.Connection) -> Sighting:
    return Sighting(shortened(f"{scene.name(one.pid)}: {one.words}"), (one.pid,), _peer(one))


def _peer(one: network.Connection) -> str:
    return network.joined(one.socket.peer_host, one.socket.peer_port)


def _meets_at_loopback(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(told_loopback(scene), at_the_meeting(scene))


def _told_loopback_unseen(scene: Scene) -> Iterator[Sighting | Gap]:
    """As above, where no stack tells where the ranks stand, and by the log they meet."""
    yield from both(told_loopback(scene), joins_unseen(scene))


def _loopback_variable(scene: Scene) -> Iterator[Sighting]:
    """As above, by a variable, which the engine may not go by."""
    yield from told_loopback(scene, by_option=False)


def _meets_by_loopback_variable(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_loopback_variable(scene), at_the_meeting(scene))


def _meets_at_told_loopback(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(told_by_ranks(scene), at_the_meeting(scene))


def _refused_while_meeting(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process stands where ranks meet, and the log tells of an address, of no web port, that refuses or does not
    answer; nobody is connected there, nobody listens here."""
    if scene.bundle.phase not in _EARLY or _files_unseen(scene):
        return
    used = _reached(scene) | {one.socket.port for one in network.connections(scene, "ESTABLISHED", "LISTEN")}
    look = scene.last
    used |= {one.port for one in look.listeners} if look and not isinstance(look.listeners, Gap) else set()
    told = []
    for line in lines(scene.bundle):
        named = _STORE_REFUSES.search(line.message)
        if named and int(named["port"]) not in network.WEB_PORTS | used:
            what = network.joined(network.normal(named["host"]), int(named["port"]))
            told.append(Sighting(shortened(f"log: {line.message}"), what=what))
    yield from both(told, (*at_the_meeting(scene), *joins_unseen(scene)))


def _never_connected(scene: Scene) -> Iterator[Sighting | Gap]:
    """A process stands where it joins the others, who are to be met on another machine by an option, and nobody has a
    connection there, made or being made: each try is refused at once."""
    if scene.bundle.phase not in _EARLY or _files_unseen(scene):
        return
    for meeting in network.meetings(scene):
        away = meeting.port and not network.is_own(scene, meeting.host) and network.addresses(scene, meeting.host)
        if meeting.by_option and away and not any(_tried(scene, meeting)):
            words = f"{meeting.told}, and no connection there was made or being made at either look"
            absent = Sighting(shortened(words), what=network.joined(meeting.host, meeting.port))
            joins = (*at_the_meeting(scene), *where.stands(scene, _HANDSHAKES), *joins_unseen(scene))
            yield from both([absent], joins)


def _tried(scene: Scene, meeting: network.Meeting) -> Iterator[bool]:
    """Connections to a meeting, in whatever state, at any look."""
    for look in scene.bundle.looks:
        for socket in (file.socket for one in look.processes for file in one.files if file.socket):
            if network.leads_to(scene, socket, meeting):
                yield True


def _nobody_came(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log counts who has joined, not all, and nobody of another machine is connected to the meeting here."""
    ports = {meeting.port for meeting in network.meetings(scene) if network.is_own(scene, meeting.host)} - {0}
    if scene.bundle.phase not in _EARLY or network.node_count(scene) < 2 or not ports or _files_unseen(scene):
        return
    made = (one.socket for one in network.connections(scene, "ESTABLISHED") if one.socket.port in ports)
    if all(network.is_own(scene, socket.peer_host) for socket in made):
        yield from both(said(scene, _SOME_JOINED), at_the_meeting(scene))
        yield from where.stands(scene, _AWAITS_OTHERS, native=True)


def _nobody_listens(scene: Scene) -> Iterator[Sighting | Gap]:
    """The meeting is on this machine, a process stands there or tries again and again, and nobody of the server
    listens or has come through."""
    look = scene.last
    if look is None or isinstance(look.listeners, Gap) or scene.bundle.phase not in _EARLY:
        return
    ports = {one.port for one in look.listeners} | {one.socket.port for one in network.connections(scene, "LISTEN")}
    absent = (
        Sighting(shortened(f"{meeting.told}, on this machine, and nobody listens on port {meeting.port}"))
        for meeting in network.meetings(scene)
        if meeting.port and network.is_own(scene, meeting.host) and not {meeting.port} & (ports | _reached(scene))
    )
    yield from both(absent, (*at_the_meeting(scene), *_tries_again(scene)))


def _reached(scene: Scene) -> set[int]:
    """The ports to which connections are made."""
    return {one.socket.peer_port for one in network.connections(scene, "ESTABLISHED", "SYN_SENT")}


def _tries_again(scene: Scene) -> Iterator[Sighting]:
    """A rank connects, or sleeps before it connects again."""
    for one in scene.standings:
        if one.rank >= 0 and (one.wait.kind is Kind.CONNECT or (one.wait.kind is Kind.SLEEPS and one.stack)):
            yield Sighting(quotes.stack(one), (one.pid,))


def _ended_by_it(scene: Scene) -> Iterator[Sighting]:
    """A process ended as nobody answered at the address where ranks are to meet."""
    for one in failures(scene):
        if one.kind in {Refused.REFUSED, Refused.UNREACHABLE}:
            names = (meeting for meeting in network.meetings(scene) if meeting.host and meeting.host in one.message)
            for meeting in names:
                yield one.sighting._replace(what=meeting.host)
                yield Sighting(meeting.told, what=meeting.host)
                yield ended(one.end)


def _is_there(scene: Scene) -> Iterator[Sighting]:
    """Every connection to the meeting is made, and nobody knocks."""
    made = [
        one
        for meeting in network.meetings(scene)
        for one in network.connections(scene, "ESTABLISHED")
        if network.leads_to(scene, one.socket, meeting)
    ]
    if made and not any(network.unanswered(scene)) and scene.bundle.phase not in _EARLY:
        yield _quoted(scene, made[0])


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    known = any(one.what for one in seen)
    return f"the ranks cannot reach the place where they are to meet{' ({what})' if known else ''}"


CAUSE = Cause(
    id="rendezvous_unreachable",
    nature=Nature.NETWORK,
    title=_title,
    clues=(
        decides("Does a connection to where the ranks are to meet stay unanswered?", _knocks_where_told),
        decides(
            "Does a connection stay unanswered of a process that stands where ranks meet?", _knocks_while_meeting
        ),
        decides(
            "Does a connection to an address that the log complains about stay unanswered?", _knocks_where_logged
        ),
        decides("Do ranks of several nodes wait to meet at a loopback address?", _meets_at_loopback),
        supports(
            "Do ranks without a stack meet, several nodes of them at a loopback address?", _told_loopback_unseen
        ),
        decides(
            "Do ranks say that they meet ranks of other machines at a loopback address?", _meets_at_told_loopback
        ),
        supports(
            "Does the log tell that an address refuses, of a process that stands where ranks meet?",
            _refused_while_meeting,
        ),
        supports("Do ranks wait to meet, with a loopback address in a variable?", _meets_by_loopback_variable),
        supports("Is the meeting on this machine, with nobody to listen?", _nobody_listens),
        supports(
            "Does a connection stay unanswered of a process without a stack, as ranks of several nodes meet?",
            _knocks_unseen,
        ),
        supports("Does a process join at another machine, with never a connection to it?", _never_connected),
        supports("Did not all join, and is nobody of another machine connected?", _nobody_came),
        supports("Does the log tell that the meeting refuses, with nobody connected to it?", _refused_where_told),
        supports(
            "Does the log tell that the head of the cluster cannot be reached, and is nobody connected?",
            _without_head,
        ),
        supports("Did a process end as nobody answered where ranks are to meet?", _ended_by_it),
        rules_out("Have all ranks met?", _is_there),
        foresees("Are several nodes told to meet at a loopback address?", told_loopback, surely=True),
        foresees("Does a variable name a loopback address as meeting place of several nodes?", _loopback_variable),
    ),
    advice=Advice(
        confirm=("From every node: nc -vz HOST PORT with the address of {what}; on the first node: ss -ltn.",),
        work_around=(
            "Name an address that all nodes reach: VLLM_HOST_IP=IP on each, SGLang --dist-init-addr IP:PORT.",
        ),
        repair=(
            (
                "Open the port in the firewall or security group (a port that is fixed: --master-port, "
                "--dist-init-addr), start the first node, and give every node the same MASTER_ADDR and "
                "MASTER_PORT."
            ),
        ),
    ),
    traps=(
        "A dropped packet looks like a slow peer for 30 minutes: torch tries that long.",
        "A proxy or service mesh may take the connection and lead nowhere.",
    ),
)
