"""Prefill and decode do not find each other: nobody listens where the other side registers."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Socket
from firstlight.diagnose import network, quotes, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, supports
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, processes, said, variables

_HANDSHAKES = (
    r"\S*(handshake|bootstrap|add_remote|get_metadata|query_\w*(agent|bootstrap|dp)|connect|register)\S* "
    r"\S*(nixl|mooncake|kv_transfer|kv_connector|disaggregation|lmcache|mori_?io)"
)
_FAILED = (
    r"(nixl|mooncake|handshake|bootstrap|side.?channel|kv.?transfer).*(timed? ?out|refused|fail|unreachable|mismatch)"
)
_NEVER_MET = (
    r"in KVPoll\.Bootstrapping|(error fetching|could not fetch|fail\w+ to (get|fetch)) prefill \w+ ?info"
    r"|(prefill|decode) instance could be dead"
    r"|(handshake|bootstrap|side.?channel).*(timed? ?out|refused|fail|unreachable|mismatch)"
)
_ROLE_IN_JSON = re.compile(r"kv_role\W{1,8}kv_(producer|consumer|both)")
_ROLES = {"producer": "prefill", "consumer": "decode", "both": "decode"}
_SIDE_CHANNELS = {"VLLM_NIXL_SIDE_CHANNEL_PORT": 5600, "VLLM_MOONCAKE_BOOTSTRAP_PORT": 8998}
"""Of vLLM, with the ports where they are unset."""
DEFAULT_PORT = 8998
"""Of SGLang's --disaggregation-bootstrap-port."""
_INTRODUCES = (
    r"^(?!\S*(listen|server|serve|thread|loop))\S*(handshake|add_remote|query_\w*(agent|bootstrap))\S* "
    r"\S*(nixl|mooncake|kv_transfer|kv_connector|disaggregation|lmcache|mori_?io)"
)
"""Not those who wait to be asked, all their life."""
_OF_ROLE = re.compile(r"/disaggregation/")
_OWN_REQUEST = r"\S*warm_?up\S* \S*/(entrypoints|managers|utils)/"
JSON_MAX = 10_000


def _nobody_listens(scene: Scene) -> Iterator[Sighting | Gap]:
    """This machine is to have the bootstrap port open, does not, and somebody here asks for it in vain."""
    if _role(scene) == "prefill" and scene.bundle.node == 0:
        here = (one for one in _calls(scene) if _is_here(scene, one.what.rpartition(":")[0]))
        yield from both(_not_open(scene), here)


def _refused_there(scene: Scene) -> Iterator[Sighting | Gap]:
    """The port is not open here, and the log tells that it was refused."""
    if _role(scene) == "prefill":
        yield from both(_not_open(scene), _refused(scene))


def _other_side_silent(scene: Scene) -> Iterator[Sighting | Gap]:
    if _role(scene) == "decode":
        yield from (*_calls(scene), *_refused(scene))


def _told(scene: Scene) -> Iterator[Sighting | Gap]:
    """This is one side of two, and its log tells that it did not find the other."""
    role = _role(scene)
    sides = [Sighting(f"this side is for {role}")] if role else []
    yield from both(said(scene, _NEVER_MET), sides)


def _in_handshake(scene: Scene) -> Iterator[Sighting | Gap]:
    """A thread stands where the two sides introduce themselves, and the log tells that it failed, or a connection of
    its process is not answered."""
    there = list(where.stands(scene, _HANDSHAKES))
    pids = {pid for one in there if isinstance(one, Sighting) for pid in one.pids}
    knocks = (
        Sighting(shortened(f"{scene.name(one.pid)}: {one.words}"), (one.pid,), _peer(one))
        for one in network.unanswered(scene)
        if one.pid in pids and one.socket.peer_port not in network.WEB_PORTS
    )
    yield from both((*knocks, *said(scene, _FAILED)), there)


def _asks_itself(scene: Scene) -> Iterator[Sighting | Gap]:
    """Every rank of a prefill server turns in the loop of its role, in no forward pass, while its own first request
    is not answered; nobody of another process is connected to its bootstrap port."""
    ranks = [one for one in scene.standings if one.rank >= 0 and one.place is not None]
    seen = [one for one in ranks if one.place and one.place.caller and _OF_ROLE.search(one.place.caller.file)]
    own = {one.process.id.pid for one in processes(scene)}
    port = _port(scene)
    made = [
        one for one in network.connections(scene, "ESTABLISHED") if port in {one.socket.port, one.socket.peer_port}
    ]
    met = any(isinstance(one.file.peers, Gap) or not own & set(one.file.peers) for one in made)
    if _role(scene) == "prefill" and seen and len(seen) == len(ranks) and not met:
        turns = Sighting(quotes.stack(seen[0]), (seen[0].pid,), f"port {port}")
        yield from both([turns], where.stands(scene, _OWN_REQUEST))


def _introduces_itself(scene: Scene) -> Iterator[Sighting | Gap]:
    """This is one side of two, and a thread that waits introduces it to the other at both looks; where that is the
    main thread, which passes there in every turn, somebody's request is not answered either."""
    for there in where.at(scene, _INTRODUCES) if _role(scene) else ():
        if isinstance(there, Gap):
            yield there
            continue
        old = where.before(scene, there.pid)
        then = next((one for one in (old.threads if old else ()) if one.tid == there.thread.tid), None)
        stack = () if then is None or isinstance(then.stack, Gap) else then.stack
        before = any(re.search(_INTRODUCES, f"{frame.function} {frame.file}") for frame in stack)
        if before and (scene.bundle.question if there.main else there.thread.state != "R"):
            yield where.shown(scene, there)


def _peer(one: network.Connection) -> str:
    return network.joined(one.socket.peer_host, one.socket.peer_port)


def _is_here(scene: Scene, host: str) -> bool:
    interfaces = scene.bundle.host.interfaces
    own = [] if isinstance(interfaces, Gap) else [address for one in interfaces for address in one.addresses]
    return host in own or host.startswith("127.") or host == "::1"


def _role(scene: Scene) -> str:
    """Of SGLang's option, or of vLLM's connector; where that does both, it asks others as decode does."""
    words = scene.bundle.option("disaggregation-mode")
    if words:
        return words[0]
    found = _ROLE_IN_JSON.search(" ".join(scene.bundle.option("kv-transfer-config") or ())[:JSON_MAX])
    return _ROLES[found[1]] if found else ""


def _port(scene: Scene) -> int:
    words = scene.bundle.option("disaggregation-bootstrap-port") or ()
    return int(words[0]) if words and words[0].isdigit() else DEFAULT_PORT


def _ports(scene: Scene) -> set[int]:
    """Where the other side may be asked."""
    if scene.bundle.option("disaggregation-mode"):
        return {_port(scene)}
    set_ = variables(scene)
    named = {name: set_.get(name, "") for name in _SIDE_CHANNELS}
    return {int(given) if given.isdigit() else _SIDE_CHANNELS[name] for name, given in named.items()}


def _not_open(scene: Scene) -> Iterator[Sighting | Gap]:
    look = scene.last
    if look is None:
        return
    if isinstance(look.listeners, Gap):
        yield look.listeners
    elif look.listeners and all(listener.port != _port(scene) for listener in look.listeners):
        yield Sighting(f"nobody listens on the bootstrap port {_port(scene)}", what=f"port {_port(scene)}")


def _calls(scene: Scene) -> Iterator[Sighting]:
    """Somebody asks for a connection to the port and gets no answer."""
    ports = _ports(scene)
    for one in processes(scene):
        for file in one.files:
            if file.socket and _asks(file.socket, ports):
                where = f"{file.socket.peer_host}:{file.socket.peer_port}"
                pid = one.process.id.pid
                yield Sighting(shortened(f"{scene.name(pid)} gets no answer from {where}"), (pid,), where)


def _asks(socket: Socket, ports: set[int]) -> bool:
    return socket.peer_port in ports and socket.state == "SYN_SENT"


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from said(
        scene, rf":{_port(scene)}\b.*(refused|timed out|Max retries)|(refused|timed out).*\b{_port(scene)}\b"
    )


def _loopback(scene: Scene) -> Iterator[Sighting]:
    """Prefill would tell decode an address that only this machine understands."""
    words = scene.bundle.option("host") or ()
    if _role(scene) == "prefill" and words and words[0] in {"127.0.0.1", "localhost", "::1"}:
        yield Sighting(f"option: --host {words[0]} with --disaggregation-mode prefill", what=words[0])


def _title(_scene: Scene, seen: tuple[Sighting, ...]) -> str:
    place = " at {what}" if any(one.what for one in seen) else ""
    return f"prefill and decode do not find each other{place}"


CAUSE = Cause(
    id="pd_handshake",
    nature=Nature.NETWORK,
    title=_title,
    clues=(
        decides("Does nobody listen on this side's bootstrap port, where somebody registers?", _nobody_listens),
        supports("Is it not open on this side, and does the log tell that it was refused?", _refused_there),
        supports("Does the bootstrap port of the other side not answer?", _other_side_silent),
        supports("Does the log of one side tell that it did not find the other?", _told),
        supports("Does a thread stand in the handshake of the two sides, and does it fail?", _in_handshake),
        supports(
            "Does prefill wait for an answer to itself, in no forward pass, with nobody connected?", _asks_itself
        ),
        supports("Does a thread that waits introduce one side to the other at both looks?", _introduces_itself),
        foresees("Would prefill tell decode a loopback address?", _loopback),
    ),
    advice=Advice(
        confirm=(
            "On prefill: ss -ltn sport = :8998 (or your --disaggregation-bootstrap-port); from decode: nc -vz.",
        ),
        work_around=("Serve once without disaggregation, to see that each side works by itself.",),
        repair=(
            "--disaggregation-bootstrap-port the same on both sides, --host an address that the others reach.",
            "vLLM: VLLM_NIXL_SIDE_CHANNEL_HOST is an address of that node by which the other side reaches it.",
            "The same version of the transfer library (nixl, mooncake) on both sides.",
        ),
    ),
    traps=("The warm-up transfers to itself (a fake transfer) and proves nothing about the other side.",),
)
