"""Lock files that are in no table of the kernel: who made one is known only by what works beside it.

Price: reads. May block on a dead network file system: run it where it can be abandoned. Two kinds are found. torch's
FileBaton (and aiter's) creates a file named `lock` or `lock_NAME` where an extension is built; everybody else polls
until it is gone, so it is stale when nobody builds there. filelock's soft lock, taken where a file system has no
locks, creates NAME.lock with the pid and the host of its owner in it; one of length zero is another kind, that lies
there to be locked again.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core.compilers import is_compiler
from firstlight.core.look import Lock
from firstlight.evidence import folders
from firstlight.evidence.mounts import Disks, filesystem_at, mounts_of

ENTRIES_MAX = 5000
DEPTH_MAX = 4
EXTENSIONS = "torch_extensions"
_STAYS = "tvm-ffi"
"""The cache whose files of that name are locked by flock(2), and stay when they are not."""
_SOFT_LOCK_BYTES_MAX = 512
_SOFT_LOCK = re.compile(rb"(\d{1,7})\n(\S{1,255})\s*")


class Worker(NamedTuple):
    """A process, where it works, and whether it is a compiler, with its command line then."""

    pid: int
    name: str
    folder: str
    compiles: bool
    words: str

    def builds_in(self, folder: str) -> bool:
        return self.compiles and (
            self.folder == folder or self.folder.startswith(f"{folder}/") or folder in self.words
        )


def extension_folders(environ: dict[str, str]) -> list[Path]:
    """Where torch and aiter build extensions, as a process with this environment sees it. Pure."""
    home = environ.get("HOME", "")
    cache = environ.get("XDG_CACHE_HOME") or f"{home}/.cache"
    of_torch = environ.get("TORCH_EXTENSIONS_DIR") or f"{cache}/{EXTENSIONS}"
    of_aiter = environ.get("AITER_JIT_DIR") or f"{home}/.aiter"
    return [Path(of_torch), Path(of_aiter)]


def lock_folders(environ: dict[str, str], words: Iterable[str]) -> list[Path]:
    """Folders in which a process with this environment and command line would leave lock files behind."""
    used = folders.used_by(environ, tuple(words), ())
    hubs = [path / ".locks" for purpose, path in used if purpose == "hub_cache"]
    return list(dict.fromkeys([*extension_folders(environ), *(p for what, p in used if what == "extensions"), *hubs]))


def build_folders(pids: Iterable[int]) -> list[Path]:
    """Where any of these processes would look for a lock file: by its environment, or in a folder that its command
    line names. One whose environment is refused counts as ours."""
    found: list[Path] = []
    for pid in pids:
        try:
            environ = procfs.environ(pid)
        except OSError:
            environ = dict(os.environ)
        words: tuple[str, ...] = ()
        with suppress(OSError):
            words = procfs.cmdline(pid)
        found += lock_folders(environ, words)
    return list(dict.fromkeys(found))


def bare_lock_files(roots: Iterable[Path], clock: Clock, deadline: Deadline) -> tuple[Lock, ...]:
    """Lock files below these folders, with their age, their owner, and the compilers that build beside them."""
    paths = list(_lock_files(roots, deadline))
    if not paths:
        return ()
    mounts = mounts_of("self")
    working = workers(deadline)
    found = []
    for path in paths:
        with suppress(OSError):
            age = max(0.0, clock.wall() - path.stat().st_mtime)
            holder = _owner(path) or _works_in(path.parent, working)
            builders = tuple(one.pid for one in working if one.builds_in(str(path.parent.resolve())))
            found.append(
                Lock(
                    kind="file",
                    path=str(path),
                    holder=holder,
                    age_s=age,
                    holder_name=next((one.name for one in working if one.pid == holder), ""),
                    builders=builders,
                    filesystem=filesystem_at(str(path.resolve()), mounts),
                )
            )
    return tuple(found)


def _lock_files(roots: Iterable[Path], deadline: Deadline) -> Iterator[Path]:
    seen = 0
    mounts, disks = mounts_of("self"), Disks()
    for root in roots:
        filesystem = filesystem_at(str(root), mounts)
        if not disks.about(root, filesystem, filesystem).answered:
            continue
        for folder, below, files in os.walk(root):
            if len(Path(folder).relative_to(root).parts) >= DEPTH_MAX:
                below.clear()
            seen += len(files) + 1
            if seen > ENTRIES_MAX or deadline.passed:
                return
            yield from (Path(folder) / name for name in files if _is_lock(Path(folder), name))


def _is_lock(folder: Path, name: str) -> bool:
    if name == "lock" or name.startswith("lock_"):
        return _STAYS not in folder.parts
    return name.endswith(".lock") and _soft_lock(folder / name) is not None


def _soft_lock(path: Path) -> re.Match[bytes] | None:
    """Pid and host in a soft lock; None for a file that is none."""
    with suppress(OSError):
        if 0 < path.lstat().st_size <= _SOFT_LOCK_BYTES_MAX:
            return _SOFT_LOCK.match(path.read_bytes())
    return None


def _owner(path: Path) -> int:
    """The live process of this machine that a soft lock names; 0 if it names none."""
    found = _soft_lock(path) if path.suffix == ".lock" else None
    if found is None or found[2].decode(errors="replace") != os.uname().nodename:
        return 0
    with suppress(OSError):
        return int(found[1]) if procfs.stat(int(found[1])).state not in "ZX" else 0
    return 0


def workers(deadline: Deadline) -> list[Worker]:
    """Every process that can be seen and where it works, the command lines of compilers alone."""
    found = []
    for pid in procfs.pids():
        if deadline.passed:
            break
        with suppress(OSError):
            stat = procfs.stat(pid)
            if stat.state not in "ZX":
                compiles = is_compiler(stat.comm)
                words = " ".join(procfs.cmdline(pid)) if compiles else ""
                found.append(Worker(pid, stat.comm, procfs.cwd(pid), compiles, words))
    return found


def _works_in(folder: Path, working: Iterable[Worker]) -> int:
    wanted = str(folder.resolve())
    return next((one.pid for one in working if one.folder == wanted), 0)
