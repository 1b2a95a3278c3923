"""Unix sockets: which talks to which, under what path, and what waits in their queues; asked of NETLINK_SOCK_DIAG.

Price: reads. Needs no privilege (sock_diag(7), linux/unix_diag.h). `multiprocessing.Pipe()` is a pair of these, and
so is every `ipc://` of ZeroMQ.
"""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.clock import Deadline

SOCKETS_MAX = 100_000

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST, _NLM_F_DUMP = 1, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_ALL_STATES = 0xFFFFFFFF
_SHOW_NAME, _SHOW_PEER, _SHOW_QUEUES = 1, 4, 16
_NAME, _PEER, _QUEUES = 0, 2, 4
_STATES = {1: "ESTABLISHED", 2: "SYN_SENT", 7: "CLOSE", 8: "CLOSE_WAIT", 10: "LISTEN"}
_HEADER = struct.Struct("=IHHII")
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
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(max(0.01, deadline.left))
        show = _SHOW_NAME | _SHOW_PEER | _SHOW_QUEUES
        body = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, 0, show, 0, 0)
        flags = _NLM_F_REQUEST | _NLM_F_DUMP
        link.send(_HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, flags, 1, 0) + body)
        found: dict[int, UnixSocket] = {}
        while not deadline.passed and len(found) < SOCKETS_MAX:
            if not take_answers(link.recv(1 << 18), found):
                break
        return found


def take_answers(data: bytes, found: dict[int, UnixSocket]) -> bool:
    """Add the sockets in one netlink datagram to `found`; False once the kernel says that it was the last.

    Raises:
        OSError: the kernel refused the question.
    """
    for kind, body in _messages(data):
        if kind == _NLMSG_DONE:
            return False
        if kind == _NLMSG_ERROR:
            raise OSError(-struct.unpack_from("=i", body)[0], "the kernel refused to list unix sockets")
        if len(body) >= _ANSWER.size:
            _family, _type, state, _, inode, *_cookie = _ANSWER.unpack_from(body)
            found[inode] = _socket(_STATES.get(state, str(state)), dict(_attributes(body[_ANSWER.size :])))
    return True


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


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind, data[at + 4 : at + length]
        at += (length + 3) & ~3
