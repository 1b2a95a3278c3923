"""A host name that the server was told does not resolve."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.host import Resolved
from firstlight.core.look import Frame
from firstlight.core.vocabulary import GapReason
from firstlight.diagnose import network, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.failures import Kind, failed, refusal
from firstlight.diagnose.joining import MEETS, joins_unseen
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, lines

_ASKS = r"getaddrinfo|gethostby|getnameinfo|_resolve\w* .*socket"
_RESOLVES = r"^(getaddrinfo|gethostby\w+|getnameinfo) "
_REFUSED = (
    "gai error",
    "getaddrinfo",
    "name or service not known",
    "temporary failure in name resolution",
    "no address associated",
    "unable to resolve",
    "could not resolve",
    "cannot be retrieved",
    "nodename nor servname",
    "unknown host",
    "no such host",
    "failed to lookup address",
    "dns resolution failed",
    "name does not resolve",
    "failed to resolve",
    "cannot resolve",
    "could not be resolved",
    "eai_again",
    "enotfound",
)
"""What resolvers say, whichever library asks them."""


def _unknown(scene: Scene) -> list[Resolved]:
    """Names that were looked up and have no address."""
    return [
        one
        for one in scene.bundle.host.resolved
        if one.addresses == () or (isinstance(one.addresses, Gap) and one.addresses.reason is GapReason.FAILED)
    ]


def _names(scene: Scene) -> Iterator[Sighting]:
    for one in _unknown(scene):
        meets = {meeting.host.lower() for meeting in network.meetings(scene)}
        pids = tuple(stand.pid for stand in scene.standings if stand.rank >= 0) if one.name.lower() in meets else ()
        why = f": {one.addresses.detail}" if isinstance(one.addresses, Gap) and one.addresses.detail else ""
        yield Sighting(shortened(f"the name {one.name} does not resolve{why}"), pids, one.name)


def _asked(scene: Scene) -> Iterator[Sighting | Gap]:
    """A name does not resolve, and somebody waits for the resolver."""
    asking = (*where.stands(scene, _ASKS), *where.stands(scene, _ASKS, native=True))
    yield from both(_names(scene), asking)


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    """A name does not resolve, and the log says so of that name."""
    yield from both(_names(scene), _complaints(scene))


def _complaints(scene: Scene) -> Iterator[Sighting]:
    names = [one.name.lower() for one in _unknown(scene)]
    for line in lines(scene.bundle):
        words = line.message.lower()
        if any(name in words for name in names) and any(refusal in words for refusal in _REFUSED):
            yield Sighting(shortened(f"log: {line.message}"), (line.pid,) if line.pid else ())


def _never_looked_up(scene: Scene) -> Iterator[Sighting]:
    """The log says that a name where the ranks are to meet does not resolve; it was not looked up since. That
    it has no IPv6 address is said of any name that has IPv4 ones."""
    known = {one.name.lower() for one in scene.bundle.host.resolved}
    told = (*network.meetings(scene), *network.services(scene))
    names = {one.host for one in told if not network.family(one.host)} - known
    for line in lines(scene.bundle):
        words = line.message.lower()
        name = "" if "ipv6" in words else next((name for name in sorted(names) if name in words), "")
        if name and any(refusal in words for refusal in _REFUSED):
            yield Sighting(shortened(f"log: {line.message}"), (line.pid,) if line.pid else (), name)


def _asks_on(scene: Scene) -> Iterator[Sighting]:
    """A main thread waits for the resolver at both looks, for a name that is not known to resolve."""
    for there in where.at(scene, _RESOLVES) if not scene.bundle.host.resolved else ():
        old = None if isinstance(there, Gap) else where.before(scene, there.pid)
        then = where.main_place(old) if old else None
        if not isinstance(there, Gap) and there.main and then and any(map(_resolves, then.frames)):
            yield where.shown(scene, there)


def _resolves(frame: Frame) -> bool:
    return re.search(_RESOLVES, f"{frame.function} ") is not None


def _told_while_meeting(scene: Scene) -> Iterator[Sighting | Gap]:
    """The log says that a name does not resolve, of which nothing else is known, and somebody stands where ranks
    meet."""
    known = {one.name.lower() for one in scene.bundle.host.resolved if not isinstance(one.addresses, Gap)}
    told = []
    for line in lines(scene.bundle):
        refused = refusal(line.message) if "ipv6" not in line.message.lower() else None
        if refused and refused.kind is Kind.NAME and not any(name in line.message.lower() for name in known):
            told.append(Sighting(shortened(f"log: {line.message}"), what=refused.what))
    yield from both(told, (*where.stands(scene, MEETS), *joins_unseen(scene)))


def _ended_by_it(scene: Scene) -> Iterator[Sighting]:
    """A process ended as a name did not resolve for it."""
    yield from failed(scene, Kind.NAME)


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    name = "the name {what}" if any(one.what for one in seen) else "a host name"
    return f"{name} does not resolve on this machine"


def _foreseen_meeting(scene: Scene) -> Iterator[Sighting]:
    """The name where the ranks are to meet does not resolve."""
    meeting = {one.host.lower() for one in network.meetings(scene)}
    yield from (one for one in _names(scene) if one.what.lower() in meeting)


CAUSE = Cause(
    id="unresolvable_host",
    nature=Nature.NETWORK,
    title=_title,
    clues=(
        decides("Does a name that it was told not resolve, while somebody waits for the resolver?", _asked),
        supports("Does the log say so of a name where ranks are to meet?", _never_looked_up),
        decides("Does the log complain about a name that indeed does not resolve?", _refused),
        supports("Does a main thread wait for the resolver all the while?", _asks_on),
        supports("Does the log say so of a name while somebody stands where ranks meet?", _told_while_meeting),
        supports("Did a process end as a name did not resolve?", _ended_by_it),
        foresees("Does the name where the ranks are to meet not resolve?", _foreseen_meeting, surely=True),
        foresees("Does a name that it is told not resolve?", _names),
    ),
    advice=Advice(
        confirm=("getent ahosts {what}",),
        work_around=(
            "Give addresses rather than names: --dist-init-addr IP:PORT, --master-addr IP, MASTER_ADDR=IP.",
        ),
        repair=("Add the name to /etc/hosts or to the DNS that the container uses (docker --add-host, --dns).",),
    ),
    traps=("A name may resolve on the host and not in the container, or on one node and not on the other.",),
)
