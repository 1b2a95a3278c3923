"""Which unix socket talks to which: peers by inode, asked of the kernel through NETLINK_SOCK_DIAG.

Price: reads. Needs no privilege (sock_diag(7), linux/unix_diag.h). `multiprocessing.Pipe()` is a pair of these.
"""

import socket
import struct
from collections.abc import Iterator

from firstlight.clock import Deadline

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST, _NLM_F_DUMP = 1, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_ALL_STATES = 0xFFFFFFFF
_UDIAG_SHOW_PEER = 4
_UNIX_DIAG_PEER = 2
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBHIIIII")
_ANSWER = struct.Struct("=BBBBIII")


def peers(deadline: Deadline) -> dict[int, int]:
    """The peer's inode for every connected unix socket of this network namespace. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(max(0.01, deadline.left))
        body = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, 0, _UDIAG_SHOW_PEER, 0, 0)
        flags = _NLM_F_REQUEST | _NLM_F_DUMP
        link.send(_HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, flags, 1, 0) + body)
        found: dict[int, int] = {}
        while not deadline.passed:
            if not take_answers(link.recv(1 << 18), found):
                break
        return found


def take_answers(data: bytes, found: dict[int, int]) -> bool:
    """Add the pairs in one netlink datagram to `found`; False once the kernel says that it was the last.

    Raises:
        OSError: the kernel refused the question.
    """
    for kind, body in _messages(data):
        if kind == _NLMSG_DONE:
            return False
        if kind == _NLMSG_ERROR:
            raise OSError(-struct.unpack_from("=i", body)[0], "the kernel refused to list unix sockets")
        inode = _ANSWER.unpack_from(body)[4]
        for attribute, value in _attributes(body[_ANSWER.size :]):
            if attribute == _UNIX_DIAG_PEER:
                found[inode] = struct.unpack_from("=I", value)[0]
    return True


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
