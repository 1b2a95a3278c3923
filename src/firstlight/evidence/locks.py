"""Locks that a process of the server holds or waits for, by the kernel's table, and who polls for one.

Price: reads. /proc/locks (proc_locks(5)) names holders, and on the lines with `->` who waits, without any privilege.
Whoever tries again and again instead of waiting (filelock does) is on no such line and does not even have the file
open between two tries: such a poller is known by its Python stack.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from firstlight import procfs
from firstlight.core.gap import Gap
from firstlight.core.look import Lock, ProcessLook, ThreadLook
from firstlight.evidence import folders
from firstlight.evidence.inodes import Descriptor, descriptors
from firstlight.evidence.lock_files import bare_lock_files, build_folders
from firstlight.evidence.mounts import filesystem_at, mounts_of

__all__ = ["KernelLock", "bare_lock_files", "build_folders", "kernel_locks", "name_of", "parse_locks", "with_pollers"]

OUTSIDERS_MAX = 64
"""Holders outside of the server whose open files are searched for the file that they lock."""

_IS_LOCK = re.compile(r"(^|/)lock$|\.lock$|(^|/)lock_[^/]*$")
_FRAMES = 16
_POLLS = re.compile(r"/(filelock|portalocker|fasteners|oslo_concurrency)/|/tvm_ffi/.*lock")
_TRIES = re.compile(r"LOCK_NB")
_TOPICS = (
    ("/huggingface_hub/|/transformers/|/modelscope/", r"/\.locks/|huggingface|modelscope"),
    ("/flashinfer/", "flashinfer"),
    ("/torch/_inductor/", "inductor"),
    ("/triton/", "triton"),
    ("/tvm_ffi/", "tvm"),
    ("/deep_gemm/", "deep_gemm"),
    ("/aiter/", "aiter"),
)
"""Whose frame is on the stack of a poller tells what its lock is called."""


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


def kernel_locks(by_pid: Mapping[int, list[Descriptor]]) -> tuple[Lock, ...]:
    """Kernel locks that a process in `by_pid` holds or waits for, with the path where one of them has it open; and
    those on lock files in the server's caches that somebody else holds."""
    table = parse_locks(procfs.locks())
    paths = {pid: _paths(found) for pid, found in by_pid.items()}
    found, outside = [], []
    for lock in (lock for lock in table if not lock.waits):
        waiters = tuple(dict.fromkeys(w.pid for w in table if w.waits and w.number == lock.number))
        involved = [pid for pid in (lock.pid, *waiters) if pid in by_pid]
        if involved:
            path = next((paths[pid][lock.inode] for pid in involved if lock.inode in paths[pid]), "")
            found.append(_described(lock, waiters, path, by_pid))
        elif lock.kind in {"flock", "posix"}:
            outside.append(lock)
    return (*found, *_of_others(outside, by_pid))


def _paths(found: Iterable[Descriptor]) -> dict[int, str]:
    """The paths of open files by inode."""
    return {inode: one.key for one in found if one.key.startswith("/") and (inode := _inode(one))}


def _described(lock: KernelLock, waiters: tuple[int, ...], path: str, by_pid: Mapping[int, list[Descriptor]]) -> Lock:
    holder = max(lock.pid, 0)
    if not _lives(holder):
        heirs = (one.pid for pid in by_pid for one in by_pid[pid] if one.key == path and _holds(one, lock.inode))
        holder = next(heirs, 0)
    filesystem = filesystem_at(path, mounts_of(next(iter(by_pid), "self"))) if path else ""
    shown = path or f"inode {lock.inode}"
    return Lock(
        kind=lock.kind,
        path=shown,
        holder=holder,
        waiters=waiters,
        holder_name=name_of(holder),
        filesystem=filesystem,
    )


def _of_others(held: Sequence[KernelLock], by_pid: Mapping[int, list[Descriptor]]) -> list[Lock]:
    """Locks of processes outside of the server, on lock files where the server would lock, too."""
    places = _places(by_pid)
    found = []
    for holder in list(dict.fromkeys(lock.pid for lock in held if lock.pid > 0))[:OUTSIDERS_MAX]:
        paths: dict[int, str] = {}
        with suppress(OSError):
            paths = _paths(one for one in descriptors(holder) if _IS_LOCK.search(one.key))
        for lock in (lock for lock in held if lock.pid == holder):
            path = paths.get(lock.inode, "")
            if any(path.startswith(f"{place}/") for place in places):
                found.append(_described(lock, (), path, by_pid))
    return found


def _places(pids: Collection[int]) -> set[str]:
    """Where these processes keep caches, and where engines put locks of models: the folder for temporary files."""
    found = set()
    for pid in pids:
        with suppress(OSError):
            environ = procfs.environ(pid)
            used = folders.used_by(environ, procfs.cmdline(pid), ())
            found |= {str(path) for _, path in used} | {environ.get("TMPDIR") or "/tmp"}
    return found


def _inode(descriptor: Descriptor) -> int:
    """The inode from the kernel's own memory (Linux 5.14 and later), else from the file system."""
    with suppress(OSError, ValueError):
        if inode := int(procfs.fd_info(descriptor.pid, descriptor.fd).get("ino", "0")):
            return inode
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


def with_pollers(found: Sequence[Lock], looks: Iterable[ProcessLook]) -> tuple[Lock, ...]:
    """The locks, with those among their waiters who try again and again, as far as stacks tell which lock it is.

    A process counts as one only if a thread of it is in the code of a library that polls. It waits for the lock whose
    file it has open, else for the one that the code around it would take; where several would fit, for none. Pure.
    """
    more: dict[int, list[int]] = {}
    for look in looks:
        pid = look.process.id.pid
        for thread in look.threads:
            awaited = _polled(thread, look, found)
            if awaited is not None and pid not in found[awaited].waiters:
                more.setdefault(awaited, []).append(pid)
    return tuple(
        msgspec.structs.replace(lock, waiters=tuple(dict.fromkeys([*lock.waiters, *more.get(index, ())])))
        for index, lock in enumerate(found)
    )


def _polled(thread: ThreadLook, look: ProcessLook, found: Sequence[Lock]) -> int | None:
    """Which of the locks a thread polls for; None if it polls for none of them, or it cannot be told."""
    if isinstance(thread.stack, Gap) or not any(
        _POLLS.search(frame.file) or _TRIES.search(frame.code) for frame in thread.stack[:_FRAMES]
    ):
        return None
    pid = look.process.id.pid
    held = [
        index
        for index, lock in enumerate(found)
        if lock.kind != "file" and lock.holder not in {0, pid} and _IS_LOCK.search(lock.path)
    ]
    opened = {file.target for file in look.files}
    files = " ".join(frame.file for frame in thread.stack)
    topic = next((path for frames, path in _TOPICS if re.search(frames, files)), "")
    for fitting in (
        [index for index in held if found[index].path in opened],
        [index for index in held if topic and re.search(topic, found[index].path)],
        held if not topic else [],
    ):
        if fitting:
            return fitting[0] if len(fitting) == 1 else None
    return None
