"""What a process has open: its descriptors, what the kernel says of each, and file locks."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.procfs.reading import content


class FdLink(NamedTuple):
    """One entry of /proc/PID/fd."""

    fd: int
    target: str


def fds(pid: int) -> Iterator[FdLink]:
    """Open descriptors and what they point at. Needs the right to ptrace the target."""
    for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
        try:
            yield FdLink(int(name), os.readlink(f"/proc/{pid}/fd/{name}"))  # noqa: PTH115
        except FileNotFoundError:
            continue


def sockets(pid: int) -> Iterator[int]:
    """For every open descriptor the inode of its socket, 0 if it is none. Needs the right to ptrace the target.

    Reads as it goes, so a process with a million descriptors costs no more than is asked for.
    """
    folder = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    target = os.readlink(entry.name, dir_fd=folder)
                except FileNotFoundError:
                    continue
                yield socket_inode(target) if target.startswith("socket:[") else 0
    finally:
        os.close(folder)


def socket_inode(target: str) -> int:
    """The inode in a descriptor's target "socket:[123]" or "pipe:[123]"; 0 for anything else."""
    if target.endswith("]") and target.startswith(("socket:[", "pipe:[")):
        return int(target[target.index("[") + 1 : -1])
    return 0


def fd_info(pid: int, fd: int) -> dict[str, str]:
    """/proc/PID/fdinfo/FD as a mapping: pos, flags, and more by kind."""
    lines = content(f"/proc/{pid}/fdinfo/{fd}").decode(errors="replace").splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def epoll_members(pid: int, fd: int) -> list[int]:
    """The descriptors that an epoll set watches, from the `tfd:` lines of its fdinfo."""
    rows = (row.split() for row in content(f"/proc/{pid}/fdinfo/{fd}").splitlines() if row.startswith(b"tfd:"))
    return [int(row[1]) for row in rows]


def fd_locks(pid: int, fd: int) -> list[str]:
    """The locks that belong to an open file, as lines of /proc/locks, from its fdinfo."""
    rows = content(f"/proc/{pid}/fdinfo/{fd}").decode(errors="replace").splitlines()
    return [row.removeprefix("lock:").strip() for row in rows if row.startswith("lock:")]


def locks() -> str:
    """/proc/locks: every lock that the kernel knows of, held or waited for."""
    return content("/proc/locks").decode(errors="replace")
