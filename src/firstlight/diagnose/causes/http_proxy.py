"""A proxy from the environment swallows the request that the server sends to itself."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Frame
from firstlight.diagnose import network, where
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, foresees, rules_out, supports
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, lines, processes

_ANSWERED = re.compile(
    r"Response \[(?:40[37]|50[24])\]|\"(?:GET|POST) http://\S{1,300} HTTP/1\.\d\" (?:40[37]|50[24])"
    r"|warm-?up.{0,200}\b(?:40[37]|50[24])\b",
    re.IGNORECASE,
)
"""What a client in the server says of an answer to itself; the server's own log of requests looks otherwise, and 503
is what a server says while it starts."""


_BY_HTTP = (
    r" \S*/ray/_private/|/grpc/|GcsClient| \S*/(disaggregation|kv_transfer|mooncake|nixl)/|(etcd3?|nats)/"
    r"|(wait_for_server|_?wait_and_warmup\w*|\w*register\w*) \S*/(sglang|vllm|dynamo|lmdeploy)/"
)
_OWN_REQUEST = r"\S*(warm_?up|wait_until_ready|wait_for_server|health)\S* \S*/(sglang|vllm|lmdeploy|tgi|dynamo)/"
_SLEEPS = re.compile(r"(clock_)?nanosleep\b")
_CLIENT = re.compile(r"/(urllib3|httpx|httpcore|aiohttp|requests)/|/http/client\.py$")
_NO_PROXY_THERE = re.compile(r"ProxyError|(connect|connection|tunnel).{0,20}\bproxy\b|Squid|ERR_ACCESS_DENIED", re.I)
"""What a client says whose request went to a proxy in vain."""


_TARGET = re.compile(r"(?:host='|https?://)(?P<host>[\w.:-]+?)(?:',? port=|:)(?P<port>\d{1,5})\b")


def _goes_astray(scene: Scene) -> Iterator[Sighting]:
    """A proxy is set, and no_proxy does not name the address under which the server asks itself."""
    entries = network.exceptions(scene)
    lost = [host for host in network.own_names(scene) if not network.bypassed(host, entries)]
    if not lost:
        return
    for name, value in network.plain_proxies(scene).items():
        listed = ",".join(entries) or "(not set)"
        yield Sighting(shortened(f"environment: {name}={value}, and no_proxy={listed} lacks {lost[0]}"), what=lost[0])


def _listens(scene: Scene) -> Iterator[Sighting | Gap]:
    """The server listens for HTTP."""
    told = scene.bundle.option("port")
    port = int(told[0]) if told and told[0].isdecimal() and len(told[0]) < 6 else 0
    own = {one.process.id.pid for one in processes(scene)}
    look = scene.last
    listeners = look.listeners if look else ()
    if isinstance(listeners, Gap):
        yield listeners
        return
    for one in listeners:
        if one.pid in own and (one.port == port or not port):
            quote = f"{scene.name(one.pid)} listens on {network.joined(one.host, one.port)}"
            yield Sighting(shortened(quote), (one.pid,))


def _to_the_proxy(scene: Scene) -> Iterator[Sighting]:
    """A connection of the server to the proxy."""
    yield from _to(scene, network.plain_proxies(scene))


def _asked_itself_in_vain(scene: Scene, message: str) -> bool:
    """Whether a request to the server's own address failed at a proxy, which may be on this machine, too."""
    if not _NO_PROXY_THERE.search(message):
        return False
    at_proxies = {network.parted(value.rpartition("@")[2])[1] for value in network.proxies(scene).values()}
    own = set(network.own_names(scene))
    return any(found["host"] in own and int(found["port"]) not in at_proxies for found in _TARGET.finditer(message))


def _to(scene: Scene, proxies: dict[str, str]) -> Iterator[Sighting]:
    known = {network.parted(value.rpartition("@")[2]) for value in proxies.values()}
    ends = {(address, port) for host, port in known for address in network.addresses(scene, host)}
    ports = {port for host, port in known if port and not network.addresses(scene, host)} - network.WEB_PORTS
    for one in network.connections(scene, "ESTABLISHED", "SYN_SENT", "CLOSE_WAIT"):
        there = (network.normal(one.socket.peer_host), one.socket.peer_port)
        if there in ends or one.socket.peer_port in ports:
            yield Sighting(shortened(f"{scene.name(one.pid)}: {one.words}, the proxy"), (one.pid,))


def _answered_by_proxy(scene: Scene) -> Iterator[Sighting]:
    """The log has an answer to the server's own request that no server of its kind gives while it starts."""
    for line in lines(scene.bundle):
        if _ANSWERED.search(line.message) or _asked_itself_in_vain(scene, line.message):
            yield Sighting(shortened(f"log: {line.message}"))


def _others_astray(scene: Scene) -> Iterator[Sighting]:
    """No entry of no_proxy names whom the server was told to meet: gRPC and HTTP go to the proxy."""
    entries = network.exceptions(scene)
    for told in (*network.meetings(scene), *network.services(scene)) if network.proxies(scene) else ():
        if not network.bypassed(told.host, entries):
            yield Sighting(shortened(f"{told.told}, which no_proxy={','.join(entries)} lacks"), what=told.host)


def _meets_by_proxy(scene: Scene) -> Iterator[Sighting | Gap]:
    """Somebody stands where others are met over HTTP or gRPC, and is connected to the proxy."""
    there = list(where.stands(scene, _BY_HTTP))
    pids = {pid for one in there if isinstance(one, Sighting) for pid in one.pids}
    to_proxy = (one for one in _to(scene, network.proxies(scene)) if pids & set(one.pids))
    yield from both(both(_others_astray(scene), to_proxy), there)


def _connected(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(both(_goes_astray(scene), _listens(scene)), _to_the_proxy(scene))


def _refused(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_goes_astray(scene), _answered_by_proxy(scene))


def _refused_while_listening(scene: Scene) -> Iterator[Sighting | Gap]:
    yield from both(_listens(scene), _refused(scene))


def _asks_itself(scene: Scene) -> Iterator[Sighting | Gap]:
    """It listens, and a thread waits for the answer to the server's own request, on a connection to another
    machine."""
    away = {
        (one.pid, one.file.fd)
        for one in network.connections(scene, "ESTABLISHED", "SYN_SENT")
        if not network.is_own(scene, one.socket.peer_host)
    }
    asks = [
        where.shown(scene, there)
        for there in where.at(scene, _OWN_REQUEST)
        if not isinstance(there, Gap)
        and any((there.pid, fd) in away for fd in there.thread.fds)
        and any(_CLIENT.search(frame.file) for frame in there.stack[: there.depth] if isinstance(frame, Frame))
    ]
    yield from both(both(_goes_astray(scene), _listens(scene)), asks)


def _asks_again(scene: Scene) -> Iterator[Sighting | Gap]:
    """It listens, and the thread that asks it sleeps until its next try: those before were not answered as they
    should be."""
    asks = [
        where.shown(scene, there)
        for there in where.at(scene, _OWN_REQUEST)
        if not isinstance(there, Gap) and _SLEEPS.match(str(there.thread.syscall))
    ]
    yield from both(both(_goes_astray(scene), _listens(scene)), asks)


def _covered(scene: Scene) -> Iterator[Sighting]:
    """no_proxy names every address of the server's own."""
    if network.plain_proxies(scene) and not any((*_goes_astray(scene), *_others_astray(scene))):
        yield Sighting(shortened(f"no_proxy={','.join(network.exceptions(scene))} covers the server's own address"))


CAUSE = Cause(
    id="http_proxy",
    nature=Nature.NETWORK,
    title="the server's request to itself ({what}) goes to an HTTP proxy",
    clues=(
        decides("Does it listen, and talk to a proxy that no_proxy does not keep it from?", _connected),
        decides(
            "Does it listen, and did a proxy that no_proxy allows answer its own request?", _refused_while_listening
        ),
        supports("Does somebody meet others through a proxy that no_proxy does not keep them from?", _meets_by_proxy),
        supports("Does it listen, and wait for an answer to itself from another machine?", _asks_itself),
        supports("Does it listen, and sleep before it asks itself again?", _asks_again),
        supports("Did such an answer come, whether or not it listens still?", _refused),
        rules_out("Does no_proxy cover its own address?", _covered),
        foresees("Will a proxy get the requests that the server sends to itself?", _goes_astray),
    ),
    advice=Advice(
        confirm=("curl --noproxy '*' http://127.0.0.1:PORT/health answers while plain curl does not.",),
        work_around=("env -u http_proxy -u HTTP_PROXY -u all_proxy -u ALL_PROXY in front of the command.",),
        repair=("no_proxy=localhost,127.0.0.1,0.0.0.0 and NO_PROXY the same, with the host that --host names.",),
    ),
    traps=(
        "no_proxy=127.0.0.1 does not cover 0.0.0.0, which some versions ask.",
        "SGLang: --skip-server-warmup hides it from the start, not from clients.",
    ),
)
