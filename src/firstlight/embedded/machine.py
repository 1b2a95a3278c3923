"""The little that the engine asks of the operating system about itself."""

import contextlib
import os
from pathlib import Path

CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
MEMINFO = Path("/proc/meminfo")


def usable_cpus() -> int:
    """CPUs this process may run on, and no more than its cgroup's quota pays for (cgroup v2, `cpu.max`)."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = CPU_MAX.read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):  # no cgroup v2 here, or no quota ("max")
        return allowed


def available_memory() -> int:
    """Bytes that can be had without swapping (proc(5), MemAvailable)."""
    rows = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
    return int(rows["MemAvailable"].split()[0]) * 1024


def name_process(name: str) -> None:
    """Show `name` in `ps` and `top` (the kernel keeps 15 characters; proc(5), comm)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)
