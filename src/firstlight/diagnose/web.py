"""Where a server's questions to the web go: web ports, and the proxies and mirrors that it was told. Pure."""

import re
from collections.abc import Iterator

from firstlight.core.look import Socket
from firstlight.diagnose import network
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import variables

_USUAL = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_MIRROR = re.compile(
    r"(HF|MODELSCOPE|AWS|S3|RUNAI|AZURE|GCS|OSS|COS|KAGGLE|WANDB|MLFLOW|AWS_S3)\w*_(ENDPOINT|ENDPOINT_URL|URI|URL|API_BASE)\w*"
    r"|(https?|all|grpc)_proxy|(HTTPS?|ALL|GRPC)_PROXY"
)
_PORTED = re.compile(r"(?:(?P<scheme>[a-z0-9]+)://)?(?:[^@/]*@)?(?P<end>[^/?#]+)", re.IGNORECASE)


def gateways(scene: Scene) -> frozenset[tuple[str, int]]:
    """The addresses and ports of proxies and mirrors that variables name."""
    told = (value for name, value in variables(scene).items() if _MIRROR.fullmatch(name))
    return frozenset(end for value in told for end in ends(scene, value))


def ends(scene: Scene, url: str) -> Iterator[tuple[str, int]]:
    """The addresses that a URL leads to, with its port or the usual one of its scheme."""
    found = _PORTED.match(url.strip())
    host, port = network.parted(found["end"]) if found else ("", 0)
    port = port or _USUAL.get((found["scheme"] or "http").lower(), 0) if found else 0
    if host and port:
        yield from ((address, port) for address in network.addresses(scene, host))


def is_web(scene: Scene, socket: Socket) -> bool:
    """Whether a connection leads to a web port of another machine."""
    return socket.peer_port in network.WEB_PORTS and not network.is_own(scene, socket.peer_host)


def end(socket: Socket) -> tuple[str, int]:
    """Whom a connection leads to."""
    return network.normal(socket.peer_host), socket.peer_port
