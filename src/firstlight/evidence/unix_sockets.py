"""Unix sockets: which talks to which, under what path, and what waits in their queues; asked of NETLINK_SOCK_DIAG.

Price: reads. Needs no privilege (sock_diag(7), linux/unix_diag.h). `multiprocessing.Pipe()` is a pair of these, and
so is every `ipc://` of ZeroMQ.
"""

import socket
import struct
from typing import NamedTuple

from firstlight.clock import Deadline
from firstlight.evidence.sock_diag import attributes, dump

SOCKETS_MAX = 100_000

_ALL_STATES = 0xFFFFFFFF
_SHOW_NAME, _SHOW_PEER, _SHOW_QUEUES = 1, 4, 16
_NAME, _PEER, _QUEUES = 0, 2, 4
_STATES = {1: "ESTABLISHED", 2: "SYN_SENT", 7: "CLOSE", 8: "CLOSE_WAIT", 10: "LISTEN"}
_REQUEST = struct.Struct("=BBHIIIII")
_ANSWER = struct.Struct("=BBBBIII")


class UnixSocket(NamedTuple):
    """One unix socket. `peer` is the inode at its other end, 0 if it is not connected; `path` is empty for one that
    has no name, and begins with "@" for an abstract one. `unread` bytes wait to be read from it, of a listener the
    connections that nobody accepts; `unsent` are the bytes sent through it that its peer has not read."""

    state: str
    peer: int = 0
    path: str = ""
    unread: int = 0
    unsent: int = 0


def unix_sockets(deadline: Deadline) -> dict[int, UnixSocket]:
    """The unix sockets of this network namespace by inode, as many as were told in time. Raises OSError."""
    show = _SHOW_NAME | _SHOW_PEER | _SHOW_QUEUES
    found: dict[int, UnixSocket] = {}
    for body in dump(_REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, 0, show, 0, 0), deadline):
        if len(body) >= _ANSWER.size:
            _family, _type, state, _, inode, *_cookie = _ANSWER.unpack_from(body)
            found[inode] = _socket(_STATES.get(state, str(state)), attributes(body[_ANSWER.size :]))
        if len(found) >= SOCKETS_MAX:
            break
    return found


def _socket(state: str, attributes: dict[int, bytes]) -> UnixSocket:
    peer, queues = attributes.get(_PEER, b""), attributes.get(_QUEUES, b"")
    unread, unsent = struct.unpack_from("=II", queues) if len(queues) >= 8 else (0, 0)
    return UnixSocket(
        state=state,
        peer=struct.unpack_from("=I", peer)[0] if len(peer) >= 4 else 0,
        path=_path(attributes.get(_NAME, b"")),
        unread=unread,
        unsent=0 if state == "LISTEN" else unsent,  # there it is the longest queue allowed
    )


def _path(name: bytes) -> str:
    abstract = name.startswith(b"\0")
    text = name[1:] if abstract else name.partition(b"\0")[0]
    return ("@" if abstract else "") + text.decode(errors="replace")
