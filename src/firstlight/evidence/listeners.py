"""Listening TCP ports of the server, and whoever owns the port that the server wants.

Price: reads.
"""

from firstlight.core.look import Listener
from firstlight.evidence.inodes import Holders
from firstlight.procfs import TcpSocket


def listeners(tcp: dict[int, TcpSocket], owners: dict[str, int], port: int, holders: Holders) -> tuple[Listener, ...]:
    """Ports that a process of the server listens on, and `port` whoever listens there. Pure.

    `owners` maps "socket:[inode]" to the pid of the server that holds it.
    """
    found = []
    for inode, row in tcp.items():
        key = f"socket:[{inode}]"
        if row.state != "LISTEN" or (key not in owners and row.local[1] != port):
            continue
        others = holders.by_key.get(key, [])
        pid = owners.get(key, others[0].pid if others else 0)
        found.append(Listener(host=row.local[0], port=row.local[1], pid=pid, backlog=row.receive_queue))
    return tuple(sorted(found, key=lambda one: (one.port, one.host)))


def wanted(tcp: dict[int, TcpSocket], port: int) -> set[str]:
    """The sockets that listen on `port`, to be looked for in every process."""
    return {f"socket:[{inode}]" for inode, row in tcp.items() if row.state == "LISTEN" and row.local[1] == port}
