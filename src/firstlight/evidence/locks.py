"""Locks that a process of the server holds, waits for, or polls.

Price: reads. Kernel locks come from /proc/locks (proc_locks(5)): the lines with `->` name who waits, without any
privilege. Bare lock files are in no kernel table: torch's FileBaton creates a file named `lock` in the folder of the
extension that it builds, and everybody else polls until it is gone. It is stale when nobody works in its folder.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core.look import Lock
from firstlight.evidence.inodes import Descriptor

ENTRIES_MAX = 5000
DEPTH_MAX = 4
EXTENSIONS = "torch_extensions"


class KernelLock(NamedTuple):
    """One line of /proc/locks. `waits` is true for a `->` line, which waits for the line `number` above it."""

    number: int
    waits: bool
    kind: str
    pid: int
    inode: int


def parse_locks(table: str) -> list[KernelLock]:
    """The lines of /proc/locks; any that make no sense are left out. Pure."""
    found = []
    for line in table.splitlines():
        words = line.replace("->", " -> ").split()
        with suppress(ValueError, IndexError):
            number, waits = int(words[0].rstrip(":")), words[1] == "->"
            kind, _advisory, _mode, pid, where = words[2:7] if waits else words[1:6]
            kind = {"FLOCK": "flock", "POSIX": "posix", "OFDLCK": "ofd"}.get(kind, kind.lower())
            found.append(KernelLock(number, waits, kind, int(pid), int(where.rsplit(":", 1)[1])))
    return found


def kernel_locks(by_pid: dict[int, list[Descriptor]]) -> tuple[Lock, ...]:
    """Kernel locks that a process in `by_pid` holds or waits for, with the path where one of them has it open."""
    table = parse_locks(procfs.locks())
    held = [lock for lock in table if not lock.waits]
    found = []
    for lock in held:
        waiters = tuple(dict.fromkeys(w.pid for w in table if w.waits and w.number == lock.number))
        involved = [pid for pid in (lock.pid, *waiters) if pid in by_pid]
        if involved:
            found.append(_described(lock, waiters, involved, by_pid))
    return tuple(found)


def _described(
    lock: KernelLock, waiters: tuple[int, ...], involved: list[int], by_pid: dict[int, list[Descriptor]]
) -> Lock:
    files = [one for pid in involved for one in by_pid[pid] if one.key.startswith("/")]
    path = next((one.key for one in files if _inode(one) == lock.inode), f"inode {lock.inode}")
    holder = max(lock.pid, 0)
    if not _lives(holder):
        heirs = (one.pid for pid in by_pid for one in by_pid[pid] if one.key == path and _holds(one, lock.inode))
        holder = next(heirs, 0)
    return Lock(kind=lock.kind, path=path, holder=holder, waiters=waiters, holder_name=name_of(holder))


def _inode(descriptor: Descriptor) -> int:
    with suppress(OSError):
        return Path(f"/proc/{descriptor.pid}/fd/{descriptor.fd}").stat().st_ino
    return 0


def _holds(descriptor: Descriptor, inode: int) -> bool:
    """Whether a lock on `inode` belongs to this open file; who took it may be gone and have left it to a child."""
    with suppress(OSError):
        rows = procfs.fd_locks(descriptor.pid, descriptor.fd)
        return any(row.inode == inode for row in parse_locks("\n".join(rows)))
    return False


def _lives(pid: int) -> bool:
    with suppress(OSError):
        return procfs.stat(pid).state not in "ZX"
    return False


def name_of(pid: int) -> str:
    """The program's name of a process, empty if it cannot be told."""
    with suppress(OSError):
        return procfs.stat(pid).comm
    return ""


def extension_folders(environ: dict[str, str]) -> list[Path]:
    """Where torch builds its extensions, as a process with this environment sees it (torch.utils.cpp_extension)."""
    if named := environ.get("TORCH_EXTENSIONS_DIR"):
        return [Path(named)]
    cache = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME', '')}/.cache"
    return [Path(cache) / EXTENSIONS]


def build_folders(pids: Iterable[int]) -> list[Path]:
    """Where any of these processes would look for a build lock: by its environment, or in a folder that its command
    line names. One whose environment is refused counts as ours."""
    found: list[Path] = []
    for pid in pids:
        try:
            environ = procfs.environ(pid)
        except OSError:
            environ = dict(os.environ)
        found += extension_folders(environ)
        with suppress(OSError):
            words = (word.rpartition("=")[2] for word in procfs.cmdline(pid))
            found += [Path(word) / EXTENSIONS for word in words if word.startswith("/")]
    return list(dict.fromkeys(found))


def bare_lock_files(folders: Iterable[Path], clock: Clock, deadline: Deadline) -> tuple[Lock, ...]:
    """Files named `lock` below `folders`, with their age and whoever works beside them."""
    found = []
    for path in _files_named_lock(folders, deadline):
        with suppress(OSError):
            age = max(0.0, clock.wall() - path.stat().st_mtime)
            holder = _works_in(path.parent, deadline)
            found.append(Lock(kind="file", path=str(path), holder=holder, age_s=age, holder_name=name_of(holder)))
    return tuple(found)


def _files_named_lock(folders: Iterable[Path], deadline: Deadline) -> Iterable[Path]:
    seen = 0
    for root in folders:
        for folder, below, files in os.walk(root):
            if len(Path(folder).relative_to(root).parts) >= DEPTH_MAX:
                below.clear()
            seen += len(files) + 1
            if seen > ENTRIES_MAX or deadline.passed:
                return
            yield from (Path(folder) / name for name in files if name == "lock" or name.startswith("lock_"))


def _works_in(folder: Path, deadline: Deadline) -> int:
    wanted = str(folder.resolve())
    for pid in procfs.pids():
        if deadline.passed:
            return 0
        with suppress(OSError):
            if procfs.cwd(pid) == wanted:
                return pid
    return 0
