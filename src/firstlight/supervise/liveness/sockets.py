"""The TCP sockets of a server, straight from the kernel's own tables: no privilege, no packet capture.

`NETLINK_SOCK_DIAG` lists every TCP socket of the network namespace with its `tcp_info` (sock_diag(7), Linux >= 4.2);
`owners` finds out whose it is. A socket that opens and closes between two passes is not seen, and neither are unix
sockets, which the kernel does not count.

Left out on purpose: firstlight's own connections, and whatever runs through the server's own port. A scrape of 100 kB
of metrics every 15 s is no progress of a server that hangs. Nor is what a process says to itself: the rank that keeps
the rendezvous store asks it a hundred times a second whether the others have come, 9 kB/s with torch 2.13.
"""

import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.supervise.liveness.owners import Owners

BYTES_EVERY_S = 2.5
SHARE_OF_A_CORE = 0.002
"""A pass over many connections is repeated later, so that it never costs more; nor does finding owners."""
CONNECTIONS_SAVINGS_S = 0.05
LISTENING_EVERY_S = 1.0
LISTENING_AT_LEAST_EVERY_S = 5.0
LISTENERS_SHARE = 0.005
LISTENERS_SAVINGS_S = 0.25
"""Whose an open port is has to be known soon: enough to search fifty thousand descriptors at once."""
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


class Listening(NamedTuple):
    """Ports that somebody listens on: those of the processes asked about, and those of nobody knows whom.

    A port is `unknown` as long as some of the processes could not be searched for its socket, or not yet. Ports that
    certainly belong to others are in neither.
    """

    ours: frozenset[int] = frozenset()
    unknown: frozenset[int] = frozenset()


class _Seen(NamedTuple):
    """A connection: in which pass it was first seen, its bytes when last counted, or first seen if not `counted`."""

    in_pass: int
    total: int
    counted: bool


class Sockets:
    """The TCP sockets of the processes it is asked about: bytes carried since the first call, ports, clients.

    A call before the next pass is due repeats the last answer.
    """

    def __init__(self, clock: Clock, port: int = 0) -> None:
        """`port` is the server's own HTTP port, 0 if unknown; traffic through it does not count as bytes."""
        self.port = port
        self._clock = clock
        self._listeners = Owners(clock, share=LISTENERS_SHARE, savings_s=LISTENERS_SAVINGS_S)
        self._owners = Owners(clock, share=SHARE_OF_A_CORE, savings_s=CONNECTIONS_SAVINGS_S)
        self._pass = 0
        self._met_in: dict[int, int] = {}
        self._seen: dict[int, _Seen] = {}
        self._totals: dict[int, int] = {}
        self._bytes: dict[int, int] | Gap = {}
        self._connections: list[TcpSocket] = []
        self._listening = Listening()
        self._bytes_due = self._listening_due = float("-inf")

    def bytes_by_pid(self, pids: Sequence[int]) -> dict[int, int] | Gap:
        """Bytes sent and received so far, by pid."""
        now = self._clock.monotonic()
        if now >= self._bytes_due:
            began = self._clock.cpu()
            try:
                self._connections = list(tcp_sockets(_CONNECTED, self._clock))
                self._bytes_due = now + max(BYTES_EVERY_S, self._spent(began) / SHARE_OF_A_CORE)
                self._bytes = self._count(pids)
            except OSError as error:
                self._bytes_due = now + BYTES_EVERY_S
                self._bytes = _refused(error)
        return self._bytes

    def listening(self, pids: Sequence[int], port: int = 0) -> Listening:
        """Ports on which these processes listen, the likeliest owner first; with `port` only that one."""
        now = self._clock.monotonic()
        if now >= self._listening_due:
            began = self._clock.cpu()
            ports = {inode: one for inode, one in _listening_ports(self._clock).items() if port in {0, one}}
            cost_s = self._spent(began) / LISTENERS_SHARE
            self._listening_due = now + min(LISTENING_AT_LEAST_EVERY_S, max(LISTENING_EVERY_S, cost_s))
            self._listeners.search(ports, pids)
            ours = frozenset(port for inode, port in ports.items() if self._listeners.of(inode) is not None)
            unknown = frozenset(port for inode, port in ports.items() if self._listeners.may_be_ours(inode))
            self._listening = Listening(ours, unknown - ours)
        return self._listening

    def clients(self, port: int) -> int:
        """Connections of others than firstlight to `port`, as of the last count of bytes."""
        ours = _own_ends(self._connections)
        return sum(c.local_port == port and (c.local_port, c.remote_port) not in ours for c in self._connections)

    def _spent(self, began: float) -> float:
        return self._clock.cpu() - began

    def _count(self, pids: Sequence[int]) -> dict[int, int]:
        self._pass += 1
        self._met_in = {pid: self._met_in.get(pid, self._pass) for pid in pids}
        self._totals = {pid: self._totals.get(pid, 0) for pid in pids}
        ours = _own_ends(self._connections)
        telling = [
            c
            for c in self._connections
            if c.inode and c.local_port != self.port and (c.local_port, c.remote_port) not in ours
        ]
        self._owners.search((c.inode for c in telling), pids)
        by_ends = {(c.local_port, c.remote_port): c.inode for c in telling}
        self._seen = {c.inode: self._add(c, by_ends.get((c.remote_port, c.local_port), 0)) for c in telling}
        return dict(self._totals)

    def _add(self, connection: TcpSocket, other_end: int) -> _Seen:
        """Count what a connection carried since it was last counted, if its owner is known by now."""
        total = connection.sent + connection.received
        seen = self._seen.get(connection.inode, _Seen(self._pass, total, counted=False))
        owner = self._owners.of(connection.inode)
        if owner is None:
            return seen
        # What an old connection of a newly met process carried before is no news.
        is_old = seen.counted or seen.in_pass <= self._met_in[owner]
        if self._owners.of(other_end) != owner:
            self._totals[owner] += max(0, total - (seen.total if is_old else 0))
        return _Seen(seen.in_pass, total, counted=True)


def _own_ends(connections: Iterable[TcpSocket]) -> set[tuple[int, int]]:
    """Of firstlight's own connections: the ports as the other side sees them."""
    own = set(procfs.sockets(os.getpid()))
    return {(c.remote_port, c.local_port) for c in connections if c.inode in own}


def _listening_ports(clock: Clock) -> dict[int, int]:
    """The port of every listening socket by its inode; from the table in /proc where there is no sock_diag."""
    try:
        return {listener.inode: listener.local_port for listener in tcp_sockets(_LISTENING, clock)}
    except OSError:
        return {row.inode: row.local[1] for row in procfs.tcp_sockets() if row.state == "LISTEN"}


def _refused(error: OSError) -> Gap:
    what = "bytes on sockets"
    if isinstance(error, TimeoutError):
        return Gap(what=what, reason=GapReason.TIMED_OUT, detail="the kernel did not list its sockets in time")
    return Gap(what=what, reason=GapReason.NOT_SUPPORTED, detail=f"this kernel has no sock_diag(7) for us: {error}")


def tcp_sockets(states: int, clock: Clock) -> Iterator[TcpSocket]:
    """Every TCP socket of this network namespace in one of `states`, a mask of the kernel's state numbers.

    Raises:
        TimeoutError: no whole answer within `REPLY_WITHIN_S`.
        OSError: the kernel has no sock_diag, or refuses it.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 4) as link:
        deadline = Deadline(clock, REPLY_WITHIN_S, "the kernel's list of sockets")
        for family in (socket.AF_INET, socket.AF_INET6):
            link.send(_dump_request(family, states))
            yield from _replies(link, deadline)


def _dump_request(family: int, states: int) -> bytes:
    body = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), 0, states)
    return _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST | _DUMP, 1, 0) + body


def _replies(link: socket.socket, deadline: Deadline) -> Iterator[TcpSocket]:
    while True:
        link.settimeout(max(0.001, deadline.left))
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
