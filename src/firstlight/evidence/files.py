"""Open files that may matter: what a thread waits for, pipes and sockets with the other end, weights, FIFOs, locks.

Price: reads. A pipe is not opened to count the bytes in it: whoever opens one becomes a reader of it, and lets a
writer through that waits for one. A file system that does not answer is met with patience (`evidence.mounts`).
"""

import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from firstlight import procfs
from firstlight.core.gap import Gap
from firstlight.core.look import NOT_COUNTED, OpenFile, ProcessLook, Socket, ThreadLook
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.inodes import Descriptor, Holders
from firstlight.evidence.mounts import NO_ANSWER, Disks, Mount, filesystem_at, mounts_of
from firstlight.evidence.syscalls import OUTSIDE
from firstlight.evidence.tcp_bytes import Carried
from firstlight.evidence.unix_sockets import UnixSocket
from firstlight.procfs import TcpSocket

FILES_MAX = 200
OPENING = -1
"""The descriptor number of a file that is still being opened."""
MAPPED = -2
"""That of a file that is mapped into memory and need not be open any more."""
MAPPED_MAX = 64

_WEIGHTS = re.compile(r"\.(safetensors|bin|pt|pth|gguf|ckpt|npz|npy|incomplete)$")
_LOCKS = re.compile(r"(^|/)lock$|\.lock$|(^|/)lock_")
_NOT_CONNECTED = frozenset({"LISTEN", "SYN_SENT", "CLOSE"})
_DEVICES = re.compile(r"/dev/(nvidia|kfd|dri|infiniband|fuse|shm/)")


class World(NamedTuple):
    """What the machine as a whole has to say about the descriptors of its processes: sockets by inode, the inode of
    the other end of each, who holds those, the mounts that each process sees, by pid, and bytes by inode."""

    tcp: dict[int, TcpSocket]
    unix: dict[int, UnixSocket]
    peers: dict[int, int]
    holders: Holders
    mounts: dict[int, dict[int, Mount]]
    disks: Disks
    carried: dict[int, Carried]
    gaps: tuple[Gap, ...] = ()


def tcp_peers(tcp: dict[int, TcpSocket]) -> dict[int, int]:
    """The inode at the other end of every TCP connection whose both ends are on this machine."""
    by_ends = {(row.local, row.remote): inode for inode, row in tcp.items() if row.state == "ESTABLISHED"}
    return {inode: by_ends[remote, local] for (local, remote), inode in by_ends.items() if (remote, local) in by_ends}


def waited(threads: tuple[ThreadLook, ...]) -> set[int]:
    """The descriptors that some thread waits for."""
    return {fd for thread in threads for fd in thread.fds}


def interesting(
    found: list[Descriptor], waited_for: set[int], telling: Collection[str] = frozenset()
) -> list[Descriptor]:
    """The descriptors worth keeping, most telling first. `telling` are keys of sockets that tell something even if no
    thread waits for them (`surroundings.telling_sockets`)."""
    ranked = [
        (1 if descriptor.key in telling else _interest(descriptor, waited_for), descriptor) for descriptor in found
    ]
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
        elif peer := world.peers.get(procfs.socket_inode(descriptor.key)):
            keys.add(f"socket:[{peer}]")
    return keys


def describe(descriptor: Descriptor, world: World) -> OpenFile:
    """The record of one descriptor."""
    shown = OpenFile(fd=descriptor.fd, kind="other", target=descriptor.key, access=descriptor.access)
    word, colon, _ = descriptor.key.partition(":")
    if colon and word == "socket":
        return _socket(descriptor, msgspec.structs.replace(shown, kind="socket"), world)
    if not (colon and word == "pipe"):
        shown = _on_disk(descriptor, shown, world)
        if shown.kind != "fifo":
            return shown
    peers = _pipe_peers(descriptor, world.holders)
    kind = "pipe" if colon and word == "pipe" else "fifo"
    return msgspec.structs.replace(shown, kind=kind, peers=peers, unseen=world.holders.unseen)


def _on_disk(descriptor: Descriptor, shown: OpenFile, world: World) -> OpenFile:
    info: dict[str, str] = {}
    with suppress(OSError):
        info = procfs.fd_info(descriptor.pid, descriptor.fd)
    mount = world.mounts.get(descriptor.pid, {}).get(_number(info, "mnt_id"), Mount("", ""))
    path = Path(f"/proc/{descriptor.pid}/fd/{descriptor.fd}")
    about = world.disks.about(path, mount.filesystem, mount.point)
    if about.kind != "file":
        return msgspec.structs.replace(shown, kind=about.kind)
    return msgspec.structs.replace(
        shown,
        kind="file",
        position=_number(info, "pos"),
        filesystem=mount.filesystem,
        size=about.size,
        detail="" if about.answered else NO_ANSWER,
    )


def _number(info: dict[str, str], field: str) -> int:
    with suppress(ValueError):
        return int(info.get(field, "0"))
    return 0


def being_opened(pid: int, path: str) -> OpenFile:
    """The file that a thread is stuck opening. A FIFO that blocks in open has nobody at its other end: fifo(7)."""
    seen = Path(f"/proc/{pid}/root{path}" if path.startswith("/") else f"/proc/{pid}/cwd/{path}")
    target = path if path.startswith("/") else f"{procfs.cwd(pid)}/{path}"
    filesystem = filesystem_at(target, mounts_of(pid))
    about = Disks().about(seen, filesystem, filesystem)
    opened = OpenFile(fd=OPENING, kind=about.kind, target=target, detail="" if about.answered else NO_ANSWER)
    return msgspec.structs.replace(opened, filesystem=filesystem, size=about.size) if about.kind == "file" else opened


def mapped_weights(one: ProcessLook) -> tuple[OpenFile, ...]:
    """The weights that a process has mapped, if a thread of it blocks outside of any system call.

    Such a thread waits for a page, and loaders close a file once it is mapped. Takes the process's mmap lock.
    """
    if not any(thread.syscall == OUTSIDE.text for thread in one.threads):
        return ()
    pid = one.process.id.pid
    paths = dict.fromkeys(mapping.path for mapping in procfs.mappings(pid, "/") if _WEIGHTS.search(mapping.path))
    mounts, disks = mounts_of(pid), Disks()
    return tuple(_mapped(pid, path, filesystem_at(path, mounts), disks) for path in list(paths)[:MAPPED_MAX])


def _mapped(pid: int, path: str, filesystem: str, disks: Disks) -> OpenFile:
    about = disks.about(Path(f"/proc/{pid}/root{path}"), filesystem, filesystem)
    detail = "" if about.answered else NO_ANSWER
    return OpenFile(
        fd=MAPPED, kind="file", target=path, access="r", filesystem=filesystem, size=about.size, detail=detail
    )


def _pipe_peers(descriptor: Descriptor, holders: Holders) -> tuple[int, ...]:
    ends = holders.by_key.get(descriptor.key, [])
    wants_writers = descriptor.reads and not descriptor.writes
    return tuple(sorted({end.pid for end in ends if (end.writes if wants_writers else end.reads)}))


def _socket(descriptor: Descriptor, shown: OpenFile, world: World) -> OpenFile:
    inode = procfs.socket_inode(descriptor.key)
    tcp, unix, peer = world.tcp.get(inode), world.unix.get(inode), world.peers.get(inode)
    if peer:
        ends = world.holders.by_key.get(f"socket:[{peer}]", [])
        peers: tuple[int, ...] | Gap = tuple(sorted({end.pid for end in ends}))
    else:
        peers = Gap(
            what="other end", reason=GapReason.NOT_SUPPORTED, detail=_why_unknown(tcp, unix), pid=descriptor.pid
        )
    return msgspec.structs.replace(
        shown,
        detail=_tcp(tcp) if tcp else _unix(unix) if unix else "",
        peers=peers,
        unseen=world.holders.unseen,
        socket=_tcp_record(tcp, world) if tcp else _unix_record(unix, world) if unix else None,
    )


def _why_unknown(tcp: TcpSocket | None, unix: UnixSocket | None) -> str:
    if tcp:
        return "it is not on this machine, or not connected"
    return "not connected" if unix else "neither TCP nor a unix socket of firstlight's own network namespace"


def _tcp_record(row: TcpSocket, world: World) -> Socket:
    listens = row.state == "LISTEN"
    nothing = Carried(0, 0) if row.state in _NOT_CONNECTED else None
    counted = world.carried.get(row.inode, nothing)
    return Socket(
        family="inet6" if ":" in row.local[0] else "inet",
        state=row.state,
        host=row.local[0],
        port=row.local[1],
        peer_host="" if listens else row.remote[0],
        peer_port=0 if listens else row.remote[1],
        unread=row.receive_queue,
        unsent=row.send_queue,
        sent_bytes=counted.sent if counted else NOT_COUNTED,
        received_bytes=counted.received if counted else NOT_COUNTED,
    )


def _unix_record(one: UnixSocket, world: World) -> Socket:
    peer = world.unix.get(one.peer)
    return Socket(
        family="unix",
        state=one.state,
        host=one.path,
        peer_host=peer.path if peer else "",
        unread=one.unread,
        unsent=one.unsent,
    )


def _unix(one: UnixSocket) -> str:
    where = f" {one.path}" if one.path else ""
    if one.state == "LISTEN":
        return f"unix socket that listens on{where}, {one.unread} waiting"
    return f"unix socket{where}, {one.unread} bytes unread" if one.unread else f"unix socket{where}"


def _tcp(row: TcpSocket) -> str:
    if row.state == "LISTEN":
        return f"listens on {_address(row.local)}, {row.receive_queue} waiting"
    queues = f"{row.receive_queue} bytes unread, {row.send_queue} bytes unsent"
    return f"TCP {_address(row.local)} to {_address(row.remote)}, {row.state}, {queues}"


def _address(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
