"""What processes and the machine have used, read from /proc (proc(5)): CPU seconds, memory, and who else computes."""

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
KB = 1024


def stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the third on; the second, in brackets, may hold spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def tree(root: int, without: int = 0) -> set[int]:
    """The root and all its descendants, but not those of `without`."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents.setdefault(int(stat(int(path.name))[1]), []).append(int(path.name))
        except OSError:  # it ended between the listing and the look
            continue
    found, todo = set(), [root]
    while todo:
        pid = todo.pop()
        if pid != without:
            found.add(pid)
            todo += parents.get(pid, [])
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """User and system time, with that of children already reaped (which is where a helper that ended is counted)."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            ticks += sum(int(field) for field in stat(pid)[11:15])
    return ticks / TICKS


def resident_mb(pids: Iterable[int]) -> float:
    """Resident memory, shared pages counted in each process."""
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Memory(NamedTuple):
    """Bytes of one process. A page is shared out in `pss` among those that map it, so that a sum counts it once."""

    rss: int
    pss: int
    pss_of_files: int
    peak_rss: int


def memory(pid: int) -> Memory:
    """Raises OSError if the process has ended."""
    rollup = _kilobytes(Path(f"/proc/{pid}/smaps_rollup"))
    status = _kilobytes(Path(f"/proc/{pid}/status"))
    return Memory(rollup["Rss"], rollup["Pss"], rollup.get("Pss_File", 0), status["VmHWM"])


RESERVED = 1 << 30
"""A mapping of more than so many bytes is a reserve, of which pages are taken when they are first written."""
MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ .*?\nSize: +(\d+) kB\n.*?\nRss: +(\d+) kB\n", re.MULTILINE | re.DOTALL)


def resident_of_reserves(pid: int) -> int:
    """Bytes of large reserves that are resident; raises OSError if the process has ended."""
    sizes = MAPPING.findall(Path(f"/proc/{pid}/smaps").read_text())
    return sum(int(resident) * KB for size, resident in sizes if int(size) * KB > RESERVED)


def _kilobytes(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * KB for words in lines if len(words) == 3 and words[2] == "kB"}


class MachineTime(NamedTuple):
    """Seconds since boot that the CPUs together were busy, and that the hypervisor gave to other machines."""

    busy: float
    stolen: float


def machine_time() -> MachineTime:
    """From the first line of /proc/stat: user nice system idle iowait irq softirq steal …"""
    first = Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, steal = (int(field) / TICKS for field in first)
    return MachineTime(user + nice + system + irq + softirq, steal)
