"""Open files that may matter: what a thread waits for, pipes and sockets with the other end, weights, FIFOs, locks.

Price: reads. May block on a dead network file system (it asks for the kind of each open file), so it runs where it
can be abandoned.
"""

import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from firstlight import procfs
from firstlight.core.gap import Gap
from firstlight.core.look import OpenFile, ThreadLook
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.inodes import Descriptor, Holders
from firstlight.procfs import TcpSocket

FILES_MAX = 200
OPENING = -1
"""The descriptor number of a file that is still being opened."""

_WEIGHTS = re.compile(r"\.(safetensors|bin|pt|pth|gguf|ckpt|npz|npy|incomplete)$")
_LOCKS = re.compile(r"(^|/)lock$|\.lock$|(^|/)lock_")
_DEVICES = re.compile(r"/dev/(nvidia|kfd|dri|infiniband|fuse|shm/)")


class World(NamedTuple):
    """What the machine as a whole has to say about one process's descriptors."""

    tcp: dict[int, TcpSocket]
    tcp_peers: dict[int, int]
    unix_peers: dict[int, int]
    holders: Holders


def tcp_peers(tcp: dict[int, TcpSocket]) -> dict[int, int]:
    """The inode at the other end of every TCP connection whose both ends are on this machine."""
    by_ends = {(row.local, row.remote): inode for inode, row in tcp.items() if row.state == "ESTABLISHED"}
    return {inode: by_ends[remote, local] for (local, remote), inode in by_ends.items() if (remote, local) in by_ends}


def waited(threads: tuple[ThreadLook, ...]) -> set[int]:
    """The descriptors that some thread waits for."""
    return {fd for thread in threads for fd in thread.fds}


def interesting(found: list[Descriptor], waited_for: set[int]) -> list[Descriptor]:
    """The descriptors worth keeping, most telling first."""
    ranked = [(_interest(descriptor, waited_for), descriptor) for descriptor in found]
    kept = sorted((rank, descriptor.fd, descriptor) for rank, descriptor in ranked if rank)
    return [descriptor for _, _, descriptor in kept[:FILES_MAX]]


def _interest(descriptor: Descriptor, waited_for: set[int]) -> int:
    """1 for the most interesting, larger for less, 0 for not at all."""
    key = descriptor.key
    if descriptor.fd in waited_for:
        return 1
    if descriptor.fd <= 2:
        return 0
    if _WEIGHTS.search(key) or _LOCKS.search(key):
        return 2
    if key.startswith(("pipe:", "socket:")):
        return 3
    if key.startswith("/") and (_DEVICES.match(key) or not key.startswith(("/dev/", "/proc/"))):
        return 4
    return 0


def other_ends(kept: list[Descriptor], world: World) -> set[str]:
    """What to look for in other processes, to learn who is at the other end of these descriptors."""
    keys = set()
    for descriptor in kept:
        if descriptor.key.startswith("pipe:") or descriptor.key.startswith("/"):
            keys.add(descriptor.key)
        elif inode := procfs.socket_inode(descriptor.key):
            peer = world.unix_peers.get(inode) or world.tcp_peers.get(inode)
            if peer:
                keys.add(f"socket:[{peer}]")
    return keys


def describe(descriptor: Descriptor, world: World) -> OpenFile:
    """The record of one descriptor."""
    kind = _kind(descriptor)
    shown = OpenFile(fd=descriptor.fd, kind=kind, target=descriptor.key, access=descriptor.access)
    if kind in {"pipe", "fifo"}:
        peers = _pipe_peers(descriptor, world.holders)
        return msgspec.structs.replace(shown, peers=peers, unseen=world.holders.unseen)
    if kind == "socket":
        return _socket(descriptor, shown, world)
    if kind == "file":
        with suppress(OSError, ValueError):
            position = int(procfs.fd_info(descriptor.pid, descriptor.fd)["pos"])
            return msgspec.structs.replace(shown, position=position)
    return shown


def being_opened(pid: int, path: str) -> OpenFile:
    """The file that a thread is stuck opening. A FIFO that blocks in open has nobody at its other end: fifo(7)."""
    seen = Path(f"/proc/{pid}/root{path}" if path.startswith("/") else f"/proc/{pid}/cwd/{path}")
    target = path if path.startswith("/") else f"{procfs.cwd(pid)}/{path}"
    return OpenFile(fd=OPENING, kind=_kind_on_disk(seen), target=target)


def _kind(descriptor: Descriptor) -> str:
    word, colon, _ = descriptor.key.partition(":")
    if colon and word in {"pipe", "socket"}:
        return word
    return _kind_on_disk(Path(f"/proc/{descriptor.pid}/fd/{descriptor.fd}"))


def _kind_on_disk(path: Path) -> str:
    with suppress(OSError):
        mode = path.stat().st_mode
        tests = {"fifo": stat.S_ISFIFO, "file": stat.S_ISREG, "device": stat.S_ISCHR}
        return next((kind for kind, test in tests.items() if test(mode)), "other")
    return "other"


def _pipe_peers(descriptor: Descriptor, holders: Holders) -> tuple[int, ...]:
    ends = holders.by_key.get(descriptor.key, [])
    wants_writers = descriptor.reads and not descriptor.writes
    return tuple(sorted({end.pid for end in ends if (end.writes if wants_writers else end.reads)}))


def _socket(descriptor: Descriptor, shown: OpenFile, world: World) -> OpenFile:
    inode = procfs.socket_inode(descriptor.key)
    row = world.tcp.get(inode)
    peer = world.unix_peers.get(inode) or world.tcp_peers.get(inode)
    detail = _tcp(row) if row else "unix socket" if peer else ""
    if peer:
        ends = world.holders.by_key.get(f"socket:[{peer}]", [])
        peers: tuple[int, ...] | Gap = tuple(sorted({end.pid for end in ends}))
    else:
        why = "it is not on this machine, or not connected" if row else "a socket that is neither TCP nor connected"
        peers = Gap(what="other end", reason=GapReason.NOT_SUPPORTED, detail=why, pid=descriptor.pid)
    return msgspec.structs.replace(shown, detail=detail, peers=peers, unseen=world.holders.unseen)


def _tcp(row: TcpSocket) -> str:
    if row.state == "LISTEN":
        return f"listens on {_address(row.local)}, {row.receive_queue} waiting"
    queues = f"{row.receive_queue} bytes unread, {row.send_queue} bytes unsent"
    return f"TCP {_address(row.local)} to {_address(row.remote)}, {row.state}, {queues}"


def _address(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
