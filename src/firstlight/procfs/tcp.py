"""TCP sockets of a network namespace, as /proc/PID/net/tcp and tcp6 tell them."""

import socket
import struct
from typing import NamedTuple

from firstlight.procfs.reading import content


class TcpSocket(NamedTuple):
    """One row of /proc/net/tcp or tcp6. `inode` is 0 for a connection that no process owns any more.

    `receive_queue` counts unread bytes, for a listener the connections waiting to be accepted.
    """

    local: tuple[str, int]
    remote: tuple[str, int]
    state: str
    send_queue: int
    receive_queue: int
    inode: int


_TCP_STATES = {
    "01": "ESTABLISHED",
    "02": "SYN_SENT",
    "03": "SYN_RECV",
    "04": "FIN_WAIT1",
    "05": "FIN_WAIT2",
    "06": "TIME_WAIT",
    "07": "CLOSE",
    "08": "CLOSE_WAIT",
    "09": "LAST_ACK",
    "0A": "LISTEN",
    "0B": "CLOSING",
    "0C": "NEW_SYN_RECV",
}


def _address(hexes: str) -> tuple[str, int]:
    host, port = hexes.split(":")
    words = [int(host[i : i + 8], 16) for i in range(0, len(host), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, packed).removeprefix("::ffff:"), int(port, 16)


def tcp_sockets(pid: int | str = "self") -> list[TcpSocket]:
    """Every TCP socket of the network namespace that `pid` lives in."""
    found = []
    for table in ("tcp", "tcp6"):
        try:
            rows = content(f"/proc/{pid}/net/{table}").decode().splitlines()[1:]
        except FileNotFoundError:
            continue  # no IPv6 on this machine
        for row in rows:
            f = row.split()
            send, receive = f[4].split(":")
            found.append(
                TcpSocket(
                    _address(f[1]),
                    _address(f[2]),
                    _TCP_STATES.get(f[3], f[3]),
                    int(send, 16),
                    int(receive, 16),
                    int(f[9]),
                )
            )
    return found
