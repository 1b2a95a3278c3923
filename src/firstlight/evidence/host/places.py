"""The folders that a server uses, the file systems that they lie on, and the room that is left.

Price: reads. The type of a file system is known from the list of mounts without touching it; its room and what lies
in a folder are asked in a worker for each, since a dead network file system answers nothing.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from firstlight import procfs
from firstlight.clock import Deadline
from firstlight.core.clean import clean_text
from firstlight.core.gap import Gap
from firstlight.core.host import Place
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.folders import used_by
from firstlight.evidence.mounts import Mount, filesystem_at, mounts_of
from firstlight.evidence.workers import Probe

WEIGHT_FILES_MAX = 10_000
SHM = Path("/dev/shm")
HOME_WITHOUT_ONE = Path("/root")

_SLOW = re.compile(
    r"nfs\d?|lustre|ceph|9p|beegfs(_nodev)?|gpfs|smb\d?|smbfs|cifs|afs|glusterfs|wekafs|pvfs2|orangefs|panfs|fuse(\..+)?"
)
_WEIGHTS = (".safetensors", ".bin", ".gguf")


def is_slow(filesystem: str) -> bool:
    """Whether it is known to be a network or user-space file system. Pure."""
    return _SLOW.fullmatch(filesystem) is not None


class Root(NamedTuple):
    """The file systems as a process sees them: `path` leads to its root from here, `mounts` are its own."""

    path: Path
    mounts: Mapping[int, Mount]

    def seen(self, path: Path) -> Path:
        """The same file as this process reaches it."""
        return self.path / path.relative_to("/") if self.path != _OWN and path.is_absolute() else path


_OWN = Path("/")


def root_of(pid: int) -> Root:
    """The root of a process that lives in mounts of its own, as in a container; otherwise, or if it may not be seen,
    ours."""
    with suppress(OSError):
        if pid and procfs.namespace(pid, "mnt") != procfs.namespace("self", "mnt"):
            return Root(Path(f"/proc/{pid}/root"), mounts_of(pid))
    return Root(_OWN, mounts_of("self"))


def places(environ: Mapping[str, str], model: str, root: Root, deadline: Deadline) -> tuple[Place, ...]:
    """Every place that a server with this environment and model would use. Ends by the deadline."""
    mounts = root.mounts
    probes = {use: Probe("file system", partial(_place, *use, root)) for use in _wanted(environ, model)}
    found = []
    for use, probe in probes.items():
        answer = probe.result(deadline)
        found.append(_unanswered(*use, mounts, answer) if isinstance(answer, Gap) else answer)
    return tuple(one for one in found if one is not None)


def _wanted(environ: Mapping[str, str], model: str) -> Iterator[tuple[str, Path, bool]]:
    """Purpose, path, and whether it is told of though it is not there yet."""
    caches = used_by(environ, (), ())
    hubs = [path for purpose, path in caches if purpose == "hub_cache"]
    if model:
        yield "weights", _weights(model, hubs), True
    told: set[str] = set()
    for purpose, path in caches:
        if purpose != "download":
            yield purpose, path, purpose not in told or str(path) in environ.values()
            told.add(purpose)
    yield "home", Path(environ.get("HOME") or HOME_WITHOUT_ONE), True
    yield "tmp", Path(environ.get("TMPDIR") or "/tmp"), True
    yield "shm", SHM, False


def _weights(model: str, hubs: Sequence[Path]) -> Path:
    """Where a model's files lie: a path is one, a name has a folder in the hub's cache."""
    if model.startswith(("/", "./", "../")) or os.path.isdir(model):  # noqa: PTH112 - an argument, as engines take it
        return Path(model).absolute()
    return hubs[0] / f"models--{model.replace('/', '--')}"


def _place(purpose: str, path: Path, anyway: bool, root: Root) -> Place | None:
    """A place; None for one that is not there and need not be told of. May block."""
    seen = root.seen(path)
    there = seen.exists()
    if not there and not anyway:
        return None
    nearest = _nearest(seen)
    existing = nearest if root.path != _OWN else Path(os.path.realpath(nearest))
    room = os.statvfs(existing)
    filesystem = filesystem_at(f"/{existing.relative_to(root.path)}", root.mounts)
    return Place(
        purpose=purpose,
        path=clean_text(str(path)),
        filesystem=filesystem,
        free_bytes=room.f_bavail * room.f_frsize,
        total_bytes=room.f_blocks * room.f_frsize,
        slow=is_slow(filesystem),
        writable=os.access(existing, os.W_OK),
        needed_bytes=weight_bytes(seen) if purpose == "weights" and there else 0,
        there=there,
    )


def _unanswered(purpose: str, path: Path, anyway: bool, mounts: Mapping[int, Mount], gap: Gap) -> Place | None:
    """A place of which only the mounts tell; None if it need not be told of and was merely refused."""
    if gap.reason is GapReason.TIMED_OUT:
        gap = msgspec.structs.replace(gap, detail="the file system did not answer; is its server out of reach?")
    elif not anyway:
        return None
    filesystem = filesystem_at(str(path), mounts)
    return Place(
        purpose=purpose,
        path=clean_text(str(path)),
        filesystem=filesystem,
        free_bytes=gap,
        total_bytes=gap,
        slow=is_slow(filesystem),
    )


def _nearest(path: Path) -> Path:
    """The path itself, or the folder around it that exists and in which it would be made."""
    return next((one for one in (path, *path.parents) if one.exists()), Path("/"))


def weight_bytes(path: Path) -> int:
    """How much an engine would read of a model's files: of the kinds that a folder holds the first of safetensors,
    bin and gguf, as engines choose. Looks at the folder, the newest snapshot of a hub folder, or the one file."""
    if path.is_file():
        return path.stat().st_size
    sizes = dict.fromkeys(_WEIGHTS, 0)
    with suppress(OSError), os.scandir(_snapshot(path)) as entries:
        for count, entry in enumerate(entries):
            kind = os.path.splitext(entry.name)[1]  # noqa: PTH122 - a name, not a path
            if count >= WEIGHT_FILES_MAX:
                break
            if kind in sizes and entry.is_file():
                sizes[kind] += entry.stat().st_size
    return next((total for total in sizes.values() if total), 0)


def _snapshot(path: Path) -> Path:
    """The snapshot of a folder of the hub's cache that its main branch means; any other folder as it is."""
    with suppress(OSError, ValueError):
        revision = (path / "refs" / "main").read_text(encoding="ascii").strip()
        if re.fullmatch(r"[0-9a-f]{40}", revision):
            return path / "snapshots" / revision
    return path
