"""Who listens on a port: asked before a launch, since it may be taken, and after the end, since it must be free."""

from typing import NamedTuple

from firstlight import procfs
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason


class PortOwner(NamedTuple):
    """A process that listens on a port."""

    pid: int
    name: str


def owner_of_port(port: int) -> PortOwner | Gap | None:
    """The process that listens on this TCP port, on any address of this network namespace; None if nobody does.

    A gap means that the port is taken, but not by whom (another user's process, or one outside this container), or
    that the sockets could not be seen at all.
    """
    try:
        inodes = {sock.inode for sock in procfs.tcp_sockets() if sock.state == "LISTEN" and sock.local[1] == port}
    except OSError as error:
        return procfs.gap_from(error, f"who listens on port {port}")
    if not inodes:
        return None
    for pid in procfs.pids():
        try:
            if any(procfs.socket_inode(link.target) in inodes for link in procfs.fds(pid)):
                return PortOwner(pid, procfs.stat(pid).comm)
        except OSError:
            continue  # gone, or not ours to see
    return Gap(
        what=f"who listens on port {port}",
        reason=GapReason.NO_PERMISSION,
        detail="the port is taken by a process that may not be seen from here; as root, `ss -ltnp` names it",
    )


def addresses_of_port(port: int) -> tuple[str, ...]:
    """The addresses on which somebody listens on this TCP port; empty if the kernel does not tell."""
    try:
        return tuple(
            {sock.local[0] for sock in procfs.tcp_sockets() if sock.state == "LISTEN" and sock.local[1] == port}
        )
    except OSError:
        return ()
