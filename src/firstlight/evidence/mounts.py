"""Which file system a file lies on, what kind it is and how long, without hanging on a mount that is dead.

Price: reads. The file system comes from the mount table and, for an open file, from the `mnt_id` in its fdinfo: both
are the kernel's own memory, so a server that does not answer cannot hold them up. Kind and size must be asked of the
file system itself; of one that can lose its server they are asked where that can be abandoned, and once only.
"""

import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from firstlight import procfs
from firstlight.clock import Deadline, SystemClock
from firstlight.core.gap import Gap
from firstlight.evidence.workers import Probe

PATIENCE_S = 0.3
NO_ANSWER = "its file system does not answer"
_CAN_LOSE_ITS_SERVER = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|fuse(blk)?(\..*)?|ceph|lustre|gpfs|beegfs|9p|afs|virtiofs|glusterfs|orangefs|ocfs2"
    r"|gfs2|wekafs|autofs"
)


class Mount(NamedTuple):
    """One line of a mount table: where, and the file system's type."""

    point: str
    filesystem: str


class About(NamedTuple):
    """Kind (file, fifo, device, other) and length of a file; `answered` is false where its file system did not."""

    kind: str
    size: int
    answered: bool = True


def parse_mounts(mountinfo: str) -> dict[int, Mount]:
    """The mounts in the text of /proc/PID/mountinfo by id, lines that make no sense left out. Pure."""
    found = {}
    for line in mountinfo.splitlines():
        front, _, back = line.partition(" - ")
        with suppress(ValueError, IndexError):
            words = front.split()
            found[int(words[0])] = Mount(_unescaped(words[4]), back.split()[0])
    return found


def _unescaped(path: str) -> str:
    """Blanks and backslashes are written in octal there."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def filesystem_at(path: str, mounts: Mapping[int, Mount]) -> str:
    """The type of the file system that an absolute path lies on; the last mount over a place counts. Pure."""
    found, longest = "", -1
    for mount in mounts.values():
        under = mount.point.rstrip("/")
        if len(under) >= longest and (path == under or path.startswith(f"{under}/")):
            found, longest = mount.filesystem, len(under)
    return found


def mounts_of(pid: int | str) -> dict[int, Mount]:
    """The mounts that a process sees; none where they may not be read."""
    with suppress(OSError):
        return parse_mounts(procfs.mountinfo(pid))
    return {}


class Disks:
    """Asks for kind and size of files, on every mount until it fails to answer once."""

    def __init__(self) -> None:
        self._dead: set[str] = set()

    def about(self, path: Path, filesystem: str, mount: str) -> About:
        """Kind and size of the file at `path`, which lies on `mount`, a file system of that type."""
        if not _CAN_LOSE_ITS_SERVER.fullmatch(filesystem):
            return kind_and_size(path)
        if mount not in self._dead:
            deadline = Deadline(SystemClock(), PATIENCE_S, "kind and size of a file")
            answer = Probe("kind and size of a file", lambda: kind_and_size(path)).result(deadline)
            if not isinstance(answer, Gap):
                return answer
            self._dead.add(mount)
        return About("file", 0, answered=False)


def kind_and_size(path: Path) -> About:
    """What the file system says of a file; "other" if it says nothing. Blocks where the file system does."""
    with suppress(OSError):
        about = path.stat()
        tests = {"fifo": stat.S_ISFIFO, "file": stat.S_ISREG, "device": stat.S_ISCHR}
        kind = next((kind for kind, test in tests.items() if test(about.st_mode)), "other")
        return About(kind, about.st_size if kind == "file" else 0)
    return About("other", 0)
