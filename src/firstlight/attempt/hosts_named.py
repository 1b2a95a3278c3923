"""The host names that a server was told, in its environment and its options. Pure."""

import ipaddress
import re
from collections.abc import Iterator, Mapping

from firstlight.core.server import ServerCommand
from firstlight.engines import typed_options

NAMES_MAX = 8
_VARIABLES = ("MASTER_ADDR", "VLLM_HOST_IP", "SGLANG_HOST_IP", "HOST_IP", "VLLM_DP_MASTER_IP", "HF_ENDPOINT")
_OPTIONS = frozenset({"dist-init-addr", "master-addr", "data-parallel-address", "nccl-init-addr", "head-address"})
_HOST = re.compile(r"(?:[a-z]+://)?(?P<host>[A-Za-z0-9][\w.-]{0,252})(?::\d{1,5})?(?:/.*)?")


def hosts_named(command: ServerCommand, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names, not addresses, each once."""
    variables = {**environ, **dict(command.env)}
    told = [variables.get(name, "") for name in _VARIABLES]
    told += [word for name, words in typed_options(command) if name in _OPTIONS for word in words[:1]]
    return tuple(dict.fromkeys(_names(told)))[:NAMES_MAX]


def _names(told: list[str]) -> Iterator[str]:
    for word in told:
        match = _HOST.fullmatch(word.strip())
        if match and match["host"] != "localhost" and not _is_address(match["host"]):
            yield match["host"]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
