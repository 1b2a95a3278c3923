"""One HTTP question to a server on this machine, with an end to it however the server behaves.

http.client never looks at proxies in the environment. The deadline covers the whole exchange: a server that drips one
byte a second is as late as one that says nothing, and a body without end is cut.
"""

import http.client
import json
import socket
from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from firstlight.clock import Deadline
from firstlight.core.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from _typeshed import WriteableBuffer

BODY_BYTES_MAX = 4 * 1024 * 1024

_LOOPBACK = {"0.0.0.0": ("127.0.0.1",), "::": ("::1", "127.0.0.1")}


class Failure(StrEnum):
    """Why there is no reply."""

    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    NO_REPLY = "no reply"
    CLOSED = "closed without a reply"
    NOT_HTTP = "not HTTP"


_FAILURES: tuple[tuple[tuple[type[Exception], ...], Failure], ...] = (
    ((ConnectionRefusedError,), Failure.REFUSED),
    ((TimeoutError,), Failure.NO_REPLY),
    ((ConnectionResetError, BrokenPipeError), Failure.CLOSED),
    ((UnicodeError, http.client.InvalidURL), Failure.UNREACHABLE),
    ((http.client.HTTPException, ValueError), Failure.NOT_HTTP),
    ((OSError,), Failure.UNREACHABLE),
)
"""The first that fits counts. A name that no host can have is out of reach, everything else odd is no HTTP."""


class Reply(Record):
    """An HTTP reply: its status, as much of the body as was read, and where it redirects to."""

    status: int
    body: bytes
    location: str = ""

    @property
    def json(self) -> object:
        """The body as JSON, None if it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def fields(self) -> dict[str, Any]:
        """The body as a JSON object, empty if it is none."""
        value = self.json
        return value if isinstance(value, dict) else {}


def exchange(
    host: str,
    port: int,
    path: str,
    *,
    deadline: Deadline,
    key: str = "",
    payload: "Mapping[str, object] | None" = None,
) -> Reply | Failure:
    """GET a path, or POST a payload to it, and read the reply before the deadline."""
    headers = {"Connection": "close", "Accept": "application/json"}
    if key.isascii() and key.isprintable() and key:
        headers["Authorization"] = f"Bearer {key}"
    body = None
    if payload is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(payload).encode()
    try:
        with closing(_Connection(host, port, deadline)) as connection:
            connection.request("POST" if payload is not None else "GET", path, body=body, headers=headers)
            with connection.getresponse() as response:
                where_to = response.getheader("Location", "")
                return Reply(status=response.status, body=_body(response), location=where_to)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return next(failure for kinds, failure in _FAILURES if isinstance(error, kinds))


def _body(response: http.client.HTTPResponse) -> bytes:
    """As much of the body as comes before its end, its limit, or the place where it breaks off."""
    try:
        return response.read(BODY_BYTES_MAX)
    except http.client.IncompleteRead as error:
        return error.partial
    except (ConnectionError, http.client.HTTPException, ValueError):
        return b""


def reachable(hosts: "Sequence[str]") -> tuple[str, ...]:
    """Where a client reaches sockets that are bound to these addresses, each once; a wildcard is loopback."""
    return tuple(dict.fromkeys(host for bound in hosts for host in _LOOPBACK.get(bound, (bound,)) if host))


class _Connection(http.client.HTTPConnection):
    """A connection whose every wait ends at one deadline."""

    def __init__(self, host: str, port: int, deadline: Deadline) -> None:
        super().__init__(host, port)
        self._deadline = deadline

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), timeout=_left(self._deadline))
        self.sock = _Socket(plain, self._deadline)


class _Socket(socket.socket):
    """A socket that waits at each call only for what is left of the deadline."""

    def __init__(self, plain: socket.socket, deadline: Deadline) -> None:
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self._deadline = deadline

    def recv_into(self, buffer: "WriteableBuffer", nbytes: int = 0, flags: int = 0) -> int:
        self.settimeout(_left(self._deadline))
        return super().recv_into(buffer, nbytes, flags)

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.settimeout(_left(self._deadline))
        super().sendall(data, flags)


def _left(deadline: Deadline) -> float:
    if deadline.passed:
        raise TimeoutError(deadline.name)
    return deadline.left
