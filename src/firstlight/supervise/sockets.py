"""The TCP sockets of a server, straight from the kernel's own tables: no privilege, no packet capture.

`NETLINK_SOCK_DIAG` lists every TCP socket of the network namespace with its `tcp_info` (sock_diag(7), Linux >= 4.2);
/proc/PID/fd tells whose it is. A socket that opens and closes between two passes is not seen, and neither are unix
sockets, which the kernel does not count.

Left out on purpose: firstlight's own connections, and whatever runs through the server's own port. A scrape of 100 kB
of metrics every 15 s is no progress of a server that hangs.
"""

import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from firstlight import procfs
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason

BYTES_EVERY_S = 2.5
LISTENING_EVERY_S = 1.0
OWNERS_EVERY_S = 5.0
SHARE_OF_A_CORE = 0.002
"""A pass that took long (many sockets, many descriptors) is repeated later, so that it never costs more than this."""
DESCRIPTORS_MAX = 4096
"""Descriptors looked at per process; one that holds more is a proxy or leaks, and its first thousands will do."""
REPLY_WITHIN_S = 0.25

_SOCK_DIAG_BY_FAMILY, _DONE, _ERROR = 20, 3, 2
_REQUEST, _DUMP = 0x001, 0x300
_INET_DIAG_INFO = 2
_CONNECTED = sum(1 << state for state in (1, 4, 5, 8, 9, 11))
"""ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING: not TIME_WAIT, which nobody owns."""
_LISTENING = 1 << 10
_HEADER = struct.Struct("=IHHII")
_INODE_AT = 68
_ATTRIBUTES_AT = 72
_TCP_INFO_ACKED_AT = 120


class TcpSocket(NamedTuple):
    """One socket: its ports, its inode (0 once nobody owns it), bytes acknowledged by the peer and received."""

    local_port: int
    remote_port: int
    inode: int
    sent: int
    received: int


class Sockets:
    """The TCP sockets of the processes it is asked about: bytes carried since the first call, ports, clients.

    Times are monotonic seconds, given by the caller. A call before the next pass is due repeats the last answer.
    """

    def __init__(self, port: int = 0) -> None:
        """`port` is the server's own HTTP port, 0 if unknown; traffic through it does not count as bytes."""
        self.port = port
        self._owners: dict[int, int] = {}
        self._members: frozenset[int] = frozenset()
        self._carried: dict[int, int] = {}
        self._totals: dict[int, int] = {}
        self._bytes: dict[int, int] | Gap = {}
        self._connections: list[TcpSocket] = []
        self._listening: frozenset[int] = frozenset()
        self._owners_due = self._bytes_due = self._listening_due = float("-inf")

    def bytes_by_pid(self, pids: Iterable[int], now: float) -> dict[int, int] | Gap:
        """Bytes sent and received so far, by pid."""
        if now >= self._bytes_due:
            began = time.perf_counter()
            newly_met = self._follow(pids, now)
            self._bytes = self._count(newly_met)
            self._bytes_due = now + max(BYTES_EVERY_S, _spent(began) / SHARE_OF_A_CORE)
        return self._bytes

    def listening(self, pids: Iterable[int], now: float) -> frozenset[int]:
        """Ports on which these processes listen; those of a process that may not be looked at are not known."""
        if now >= self._listening_due:
            began = time.perf_counter()
            self._listening = self._listeners(pids, now)
            self._listening_due = now + max(LISTENING_EVERY_S, _spent(began) / SHARE_OF_A_CORE)
        return self._listening

    def clients(self, port: int) -> int:
        """Connections of others than firstlight to `port`, as of the last count of bytes."""
        ours = _own_ends(self._connections)
        return sum(c.local_port == port and (c.local_port, c.remote_port) not in ours for c in self._connections)

    def _follow(self, pids: Iterable[int], now: float) -> frozenset[int]:
        """Learn whose sockets are whose, when that is due; the processes that were not known before."""
        members = frozenset(pids)
        newly_met = members - self._members
        if now >= self._owners_due or newly_met:
            began = time.perf_counter()
            self._owners = {inode: pid for pid in sorted(members) for inode in _socket_inodes(pid)}
            self._members = members
            self._totals = {pid: self._totals.get(pid, 0) for pid in members}
            self._owners_due = now + max(OWNERS_EVERY_S, _spent(began) / SHARE_OF_A_CORE)
        return newly_met

    def _count(self, newly_met: frozenset[int]) -> dict[int, int] | Gap:
        try:
            self._connections = list(tcp_sockets(_CONNECTED))
        except OSError as error:
            return _refused(error)
        ours = _own_ends(self._connections)
        carried: dict[int, int] = {}
        for connection in self._connections:
            owner = self._owners.get(connection.inode)
            if owner is None:
                continue
            total = carried[connection.inode] = connection.sent + connection.received
            if connection.local_port == self.port or (connection.local_port, connection.remote_port) in ours:
                continue
            # What an old connection of a newly met process carried before is no news.
            before = self._carried.get(connection.inode, total if owner in newly_met else 0)
            self._totals[owner] += max(0, total - before)
        self._carried = carried
        return dict(self._totals)

    def _listeners(self, pids: Iterable[int], now: float) -> frozenset[int]:
        ports = _listening_ports()
        if ports.keys() - self._owners.keys():
            self._owners_due = min(self._owners_due, now)  # a stranger, or a socket opened since: look again
        self._follow(pids, now)
        return frozenset(port for inode, port in ports.items() if inode in self._owners)


def _spent(began: float) -> float:
    return time.perf_counter() - began


def _own_ends(connections: Iterable[TcpSocket]) -> set[tuple[int, int]]:
    """Of firstlight's own connections: the ports as the other side sees them."""
    own = set(_socket_inodes(os.getpid()))
    return {(c.remote_port, c.local_port) for c in connections if c.inode in own}


def _listening_ports() -> dict[int, int]:
    """The port of every listening socket by its inode; from the table in /proc where there is no sock_diag."""
    try:
        return {listener.inode: listener.local_port for listener in tcp_sockets(_LISTENING)}
    except OSError:
        return {row.inode: row.local[1] for row in procfs.tcp_sockets() if row.state == "LISTEN"}


def _refused(error: OSError) -> Gap:
    what = "bytes on sockets"
    if isinstance(error, TimeoutError):
        return Gap(what=what, reason=GapReason.TIMED_OUT, detail="the kernel did not list its sockets in time")
    return Gap(what=what, reason=GapReason.NOT_SUPPORTED, detail=f"this kernel has no sock_diag(7) for us: {error}")


def _socket_inodes(pid: int) -> Iterator[int]:
    try:
        for link in islice(procfs.fds(pid), DESCRIPTORS_MAX):
            if link.target.startswith("socket:["):
                yield procfs.socket_inode(link.target)
    except OSError:
        return  # gone, or not ours to see: then its bytes are not known either, and `sampling` says so


def tcp_sockets(states: int) -> Iterator[TcpSocket]:
    """Every TCP socket of this network namespace in one of `states`, a mask of the kernel's state numbers.

    Raises:
        TimeoutError: no whole answer within `REPLY_WITHIN_S`.
        OSError: the kernel has no sock_diag, or refuses it.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 4) as link:
        ends = time.monotonic() + REPLY_WITHIN_S
        for family in (socket.AF_INET, socket.AF_INET6):
            link.send(_dump_request(family, states))
            yield from _replies(link, ends)


def _dump_request(family: int, states: int) -> bytes:
    body = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), 0, states)
    return _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST | _DUMP, 1, 0) + body


def _replies(link: socket.socket, ends: float) -> Iterator[TcpSocket]:
    while True:
        link.settimeout(max(0.001, ends - time.monotonic()))
        data = link.recv(1 << 18)
        at = 0
        while at + _HEADER.size <= len(data):
            length, kind, _, _, _ = _HEADER.unpack_from(data, at)
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -struct.unpack_from("=i", data, at + _HEADER.size)[0]
                raise OSError(code, os.strerror(code))
            yield _parse(data, at + _HEADER.size, at + length)
            at += max(_HEADER.size, (length + 3) & ~3)


def _parse(data: bytes, at: int, end: int) -> TcpSocket:
    """One `inet_diag_msg` and, among the attributes behind it, the counters in `tcp_info`."""
    local_port, remote_port = struct.unpack_from("!HH", data, at + 4)
    (inode,) = struct.unpack_from("=I", data, at + _INODE_AT)
    sent = received = 0
    attribute = at + _ATTRIBUTES_AT
    while attribute + 4 <= end:
        length, kind = struct.unpack_from("=HH", data, attribute)
        if kind == _INET_DIAG_INFO and length >= 4 + _TCP_INFO_ACKED_AT + 16:
            sent, received = struct.unpack_from("=QQ", data, attribute + 4 + _TCP_INFO_ACKED_AT)
        attribute += max(4, (length + 3) & ~3)
    return TcpSocket(local_port, remote_port, inode, sent, received)
