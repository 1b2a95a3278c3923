"""What surrounds the server's descriptors: sockets, their peers, mounts, and who else holds them.

Price: reads. A socket's inode is unique on the machine, but TCP tables and addresses belong to a network namespace,
so there is one table for each that the processes live in. Unix sockets are told of the namespace of firstlight alone.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from firstlight import procfs
from firstlight.clock import Deadline
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.evidence import files, listeners
from firstlight.evidence.files import World
from firstlight.evidence.inodes import Descriptor, Holders, holders
from firstlight.evidence.mounts import Disks, Mount, mounts_of
from firstlight.evidence.tcp_bytes import Carried, carried
from firstlight.evidence.unix_sockets import UnixSocket, unix_sockets
from firstlight.procfs import TcpSocket

NAMESPACES_MAX = 16


def survey(kept: Mapping[int, list[Descriptor]], port: int, deadline: Deadline) -> World:
    """One look at the machine for all processes in `kept`, which maps a pid to its descriptors of interest."""
    by_network = _by_namespace(kept, "net")
    tables = [_tcp_sockets(pids) for pids in list(by_network.values())[:NAMESPACES_MAX]]
    tcp = {inode: row for table in tables for inode, row in table.items()}
    unix: dict[int, UnixSocket] = {}
    with suppress(OSError):  # a kernel without unix_diag: these sockets then say that their other end is not known
        unix = unix_sockets(deadline)
    peers = {inode: one.peer for inode, one in unix.items() if one.peer}
    for table in tables:
        peers |= files.tcp_peers(table)
    counted: dict[int, Carried] = {}
    with suppress(OSError):
        counted = carried(deadline)
    near = World(tcp, unix, peers, Holders({}, 0), _mounts(kept), Disks(), counted, _unseen(by_network))
    keys = {key for found in kept.values() for key in files.other_ends(found, near)}
    if port:
        keys |= listeners.wanted(tcp, port)
    return near._replace(holders=holders(keys, kept, deadline))


def telling_sockets(pids: Iterable[int]) -> set[str]:
    """The TCP sockets that may tell something even if no thread waits for them by name: those that still connect,
    were closed by the other side, or have bytes in their queues. As keys of descriptors."""
    rows = (row for some in _by_namespace(pids, "net").values() for row in _tcp_sockets(some).values())
    return {f"socket:[{row.inode}]" for row in rows if _tells(row)}


def _tells(row: TcpSocket) -> bool:
    return row.state in {"SYN_SENT", "CLOSE_WAIT"} or bool(row.receive_queue or row.send_queue)


def _by_namespace(pids: Iterable[int], kind: str) -> dict[str, list[int]]:
    """The processes by the namespace that they live in; where that is refused, it is taken for ours."""
    found: dict[str, list[int]] = {}
    ours = procfs.namespace("self", kind)
    for pid in pids:
        name = ours
        with suppress(OSError):
            name = procfs.namespace(pid, kind)
        found.setdefault(name, []).append(pid)
    return found


def _tcp_sockets(pids: Iterable[int]) -> dict[int, TcpSocket]:
    """TCP sockets by inode, of the network namespace of `pids`, read through the first that still lives."""
    for pid in pids:
        with suppress(OSError):
            return {row.inode: row for row in procfs.tcp_sockets(pid) if row.inode}
    return {}


def _mounts(pids: Iterable[int]) -> dict[int, dict[int, Mount]]:
    by_namespace = _by_namespace(pids, "mnt")
    return {pid: mounts for some in by_namespace.values() for mounts in [mounts_of(some[0])] for pid in some}


def _unseen(by_network: Mapping[str, list[int]]) -> tuple[Gap, ...]:
    """What namespaces of their own keep from being seen."""
    gaps = []
    ours = procfs.namespace("self", "net")
    if others := [pid for name, pids in by_network.items() if name != ours for pid in pids]:
        detail = "in another network namespace than firstlight: run it inside the container to see their other ends"
        gaps += [Gap(what="unix sockets", reason=GapReason.NOT_SUPPORTED, detail=detail, pid=pid) for pid in others]
    if len(by_network) > NAMESPACES_MAX:
        detail = f"the processes live in {len(by_network)} network namespaces; {NAMESPACES_MAX} were looked at"
        gaps.append(Gap(what="TCP sockets", reason=GapReason.NOT_SUPPORTED, detail=detail))
    return tuple(gaps)
