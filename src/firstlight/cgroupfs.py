"""Where the control groups of a process lie: thin, no judgement, for watching and looking alike (cgroups(7), v1, v2).

The kernel tells which groups a process lives in (/proc/PID/cgroup) and where the hierarchies are mounted
(/proc/self/mountinfo); here the two become folders. Everything that parses is pure.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from firstlight import procfs


class Mount(NamedTuple):
    """A cgroup hierarchy: which group its root shows, where, and which controllers it has (v2: none are named)."""

    root: str
    point: str
    controllers: frozenset[str]
    unified: bool


class Group(NamedTuple):
    """A process's group in one hierarchy: its folder, and the folder where the hierarchy is mounted."""

    folder: Path
    point: Path
    unified: bool

    @property
    def lineage(self) -> list[Path]:
        """The group's folder and those of the groups around it, as far out as they can be seen from here."""
        inside = [self.folder, *self.folder.parents]
        return inside[: inside.index(self.point) + 1] if self.point in inside else [self.folder]


def mounts() -> list[Mount]:
    """The cgroup hierarchies that are mounted here, none where that cannot be told."""
    try:
        return cgroup_mounts(procfs.mountinfo())
    except OSError:
        return []


def cgroup_mounts(mountinfo: str) -> list[Mount]:
    """The cgroup hierarchies in the text of /proc/self/mountinfo (proc(5))."""
    found = []
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if separator and right[0] in {"cgroup", "cgroup2"} and len(left) > 4 and len(right) > 2:
            found.append(Mount(left[3], left[4], frozenset(right[2].split(",")), right[0] == "cgroup2"))
    return found


def groups(mounted: Iterable[Mount], cgroup: str, controller: str) -> list[Group]:
    """The groups that may speak for `controller`, from the text of a /proc/PID/cgroup, in its order.

    On a machine with both versions the unified hierarchy may come along without having the controller.
    """
    found = []
    for line in cgroup.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        for mount in mounted:
            named = controller in controllers.split(",") and controller in mount.controllers
            fits = not controllers if mount.unified else named
            if fits and (folder := _below(mount, name)):
                found.append(Group(folder, Path(mount.point), mount.unified))
    return found


def _below(mount: Mount, group: str) -> Path | None:
    """A group's folder, None if it lies outside of what is mounted here (of another container, seen from ours). In a
    container the group may be named as the host names it, and be the mount's own root."""
    root = mount.root.rstrip("/")
    if f"{group}/".startswith("/../") or not (group == "/" or f"{group}/".startswith(f"{root}/")):
        return None
    folder = Path(mount.point + group[len(root) :]) if group != "/" else Path(mount.point)
    return folder if folder.is_dir() else Path(mount.point)


def counts(text: str) -> dict[str, int]:
    """The rows "name number" of a file like memory.events or cpu.stat."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
