"""Questions to the kernel about all sockets of one kind, by NETLINK_SOCK_DIAG: one datagram out, many in.

Price: reads. Needs no privilege (sock_diag(7)); tells of the network namespace of firstlight alone.
"""

import socket
import struct
from collections.abc import Iterator

from firstlight.clock import Deadline

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST, _NLM_F_DUMP = 1, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_HEADER = struct.Struct("=IHHII")


def dump(request: bytes, deadline: Deadline) -> Iterator[bytes]:
    """The bodies of the answers, one a socket, as many as come in time. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(max(0.01, deadline.left))
        flags = _NLM_F_REQUEST | _NLM_F_DUMP
        link.send(_HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, flags, 1, 0) + request)
        while not deadline.passed:
            for kind, body in messages(link.recv(1 << 18)):
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    raise OSError(-struct.unpack_from("=i", body)[0], "the kernel refused to list sockets")
                yield body


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and body of each message in a datagram; what is torn is left out. Pure."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def attributes(data: bytes) -> dict[int, bytes]:
    """The attributes that follow the fixed part of an answer. Pure."""
    found, at = {}, 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            break
        found[kind] = data[at + 4 : at + length]
        at += (length + 3) & ~3
    return found
