"""What the control groups of a process allow it, and what they have refused it already (cgroups(7), v1 and v2).

Price: reads. A limit may sit on a group further out (a pod, a job): of a group and those around it the one with the
tightest limit counts, with its own use and events. Names of files from Documentation/admin-guide/cgroup-v2.rst and
cgroup-v1/ of the kernel.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from firstlight import cgroupfs, procfs
from firstlight.cgroupfs import Group, Mount
from firstlight.core.facts import UNLIMITED, Cgroup
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason

_V1_UNLIMITED = 1 << 62
"""Version 1 says "no limit" as the largest number of whole pages."""


class _Files(NamedTuple):
    """A controller's files: what is used, the limit, the events, and the word for its refusals among them."""

    used: str
    limit: str
    events: str
    refused: str


_MEMORY = {
    True: _Files("memory.current", "memory.max", "memory.events", "oom_kill"),
    False: _Files("memory.usage_in_bytes", "memory.limit_in_bytes", "memory.oom_control", "oom_kill"),
}
_PIDS = dict.fromkeys((True, False), _Files("pids.current", "pids.max", "pids.events", "max"))


def cgroup_of(pid: int) -> Cgroup:
    """Limits, use and events of the groups that a process lives in; a field is a gap where its controller is not
    there."""
    try:
        return cgroup(procfs.cgroup(pid), cgroupfs.mounts())
    except OSError as error:
        gap = procfs.gap_from(error, "control group", pid)
        return Cgroup(
            memory_bytes=gap,
            memory_max_bytes=gap,
            oom_kills=gap,
            pids=gap,
            pids_max=gap,
            pids_refused=gap,
            cpu_cores=gap,
            throttled_s=gap,
        )


def cgroup(text: str, mounts: Iterable[Mount]) -> Cgroup:
    """The same from the text of a /proc/PID/cgroup."""
    mounted = list(mounts)
    memory = _counted(cgroupfs.groups(mounted, text, "memory"), _MEMORY, "memory")
    pids = _counted(cgroupfs.groups(mounted, text, "pids"), _PIDS, "pids")
    cores, throttled_s = _cpu(cgroupfs.groups(mounted, text, "cpu"))
    return Cgroup(
        path=_path(text),
        memory_bytes=memory[0],
        memory_max_bytes=memory[1],
        oom_kills=memory[2],
        pids=pids[0],
        pids_max=pids[1],
        pids_refused=pids[2],
        cpu_cores=cores,
        throttled_s=throttled_s,
    )


def _path(text: str) -> str:
    """The group by its name: that of the memory controller, which matters most, else of the unified hierarchy."""
    rows = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    memory = next((row[2] for row in rows if "memory" in row[1].split(",")), "")
    return memory or next((row[2] for row in rows if not row[1]), "")


def _counted(
    groups: Iterable[Group], names: dict[bool, _Files], controller: str
) -> tuple[int | Gap, int | Gap, int | Gap]:
    """Use, limit and refusals under a controller that counts something."""
    for group in groups:
        files = names[group.unified]
        limits = {folder: _limit(folder / files.limit) for folder in group.lineage}
        if not any((folder / files.used).exists() for folder in limits):
            continue
        bound = {folder: limit for folder, limit in limits.items() if isinstance(limit, int) and limit >= 0}
        folder = min(bound, key=bound.__getitem__) if bound else _first_with(files.used, limits)
        return _number(folder / files.used), limits[folder], _event(folder / files.events, files.refused)
    gap = _absent(controller)
    return gap, gap, gap


def _first_with(name: str, folders: Iterable[Path]) -> Path:
    return next(folder for folder in folders if (folder / name).exists())


def _cpu(groups: Iterable[Group]) -> tuple[float | Gap, float | Gap]:
    """The tightest quota in cores, and how long it held tasks back."""
    for group in groups:
        quotas = {folder: _cores(folder, group.unified) for folder in group.lineage}
        told = {folder: cores for folder, cores in quotas.items() if cores is not None}
        if not told:
            continue
        bound = {folder: cores for folder, cores in told.items() if cores >= 0}
        folder = min(bound, key=bound.__getitem__) if bound else next(iter(told))
        return told[folder], _throttled_s(folder)
    gap = _absent("cpu")
    return gap, gap


def _cores(folder: Path, unified: bool) -> float | None:
    """The quota in cores, `UNLIMITED` without one; None where the controller says nothing."""
    try:
        if unified:
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return float(UNLIMITED) if quota in {"max", "-1"} else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _throttled_s(folder: Path) -> float | Gap:
    try:
        counts = cgroupfs.counts((folder / "cpu.stat").read_text())
    except (OSError, ValueError):
        return _absent("cpu")
    return counts.get("throttled_usec", 0) / 1e6 + counts.get("throttled_time", 0) / 1e9


def _limit(file: Path) -> int | Gap:
    limit = _number(file)
    return UNLIMITED if isinstance(limit, int) and limit >= _V1_UNLIMITED else limit


def _number(file: Path) -> int | Gap:
    """The number in a file; the root of a hierarchy has no limits, and so no file for them."""
    try:
        word = file.read_text().strip()
        return UNLIMITED if word == "max" else int(word)
    except FileNotFoundError:
        return UNLIMITED if file.name.endswith(("max", "limit_in_bytes")) else _absent(file.name)
    except (OSError, ValueError):
        return _absent(file.name)


def _event(file: Path, name: str) -> int | Gap:
    try:
        return cgroupfs.counts(file.read_text()).get(name, 0)
    except (OSError, ValueError):
        return _absent(file.name)


def _absent(what: str) -> Gap:
    detail = "the process's control group has no such controller here"
    return Gap(what=f"control group: {what}", reason=GapReason.NOT_SUPPORTED, detail=detail)
