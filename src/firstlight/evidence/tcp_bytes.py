"""How many bytes every TCP connection has carried, from its tcp_info.

Price: reads. linux/inet_diag.h, linux/tcp.h; bytes are counted since Linux 4.1.
"""

import socket
import struct
from typing import NamedTuple

from firstlight.clock import Deadline
from firstlight.evidence.sock_diag import attributes, dump

CONNECTIONS_MAX = 100_000

_INFO = 2
_CONNECTED = sum(1 << state for state in (1, 4, 5, 8, 9, 11))
"""ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING."""
_REQUEST = struct.Struct("=BBBxI48x")
_ANSWER_BYTES = 72
_INODE_AT = 68
_ACKED_AT = 120
_BYTES = struct.Struct("=QQ")


class Carried(NamedTuple):
    """Bytes that the peer has acknowledged, and bytes received."""

    sent: int
    received: int


def carried(deadline: Deadline) -> dict[int, Carried]:
    """By the inode of the socket, for the network namespace of firstlight. Raises OSError."""
    found: dict[int, Carried] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _CONNECTED)
        for body in dump(request, deadline):
            info = attributes(body[_ANSWER_BYTES:]).get(_INFO, b"")
            if len(body) >= _ANSWER_BYTES and len(info) >= _ACKED_AT + _BYTES.size:
                inode = struct.unpack_from("=I", body, _INODE_AT)[0]
                found[inode] = Carried(*_BYTES.unpack_from(info, _ACKED_AT))
            if len(found) >= CONNECTIONS_MAX:
                break
    return found
