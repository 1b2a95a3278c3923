"""What surrounds the server's descriptors: sockets, their peers, and who else holds them.

Price: reads.
"""

from collections.abc import Mapping
from contextlib import suppress

from firstlight import procfs
from firstlight.clock import Deadline
from firstlight.evidence import files, listeners, unix_sockets
from firstlight.evidence.files import World
from firstlight.evidence.inodes import Descriptor, Holders, holders
from firstlight.procfs import TcpSocket


def survey(kept: Mapping[int, list[Descriptor]], port: int, deadline: Deadline) -> World:
    """One look at the machine for all processes in `kept`, which maps a pid to its descriptors of interest."""
    tcp = _tcp_sockets(kept)
    unix: dict[int, int] = {}
    with suppress(OSError):  # a kernel without unix_diag: these sockets then say that their other end is not known
        unix = unix_sockets.peers(deadline)
    near = World(tcp, files.tcp_peers(tcp), unix, Holders({}, 0))
    keys = {key for found in kept.values() for key in files.other_ends(found, near)}
    if port:
        keys |= listeners.wanted(tcp, port)
    return near._replace(holders=holders(keys, kept, deadline))


def _tcp_sockets(kept: Mapping[int, list[Descriptor]]) -> dict[int, TcpSocket]:
    """TCP sockets by inode, of the network namespace of the first process that still has one."""
    for pid in kept:
        with suppress(OSError):
            return {row.inode: row for row in procfs.tcp_sockets(pid) if row.inode}
    return {}
