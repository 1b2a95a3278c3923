"""Whether the pid that a run wrote down still means the process that it meant."""

from functools import cache
from pathlib import Path

from firstlight import procfs

_ENDED = frozenset("ZX")
_TICK_S = 0.01


def alive_since(pid: int, boottime: float) -> bool:
    """True if the process that had this pid at `boottime` (seconds, CLOCK_BOOTTIME) still exists and has not ended.

    A pid is used again by others; they have begun later.
    """
    try:
        seen = procfs.stat(pid)
    except (OSError, ValueError):
        return False
    return seen.state not in _ENDED and seen.started / procfs.TICKS_PER_S <= boottime + _TICK_S


@cache
def pid_space() -> str:
    """Where pids mean what they mean to this process: the boot of the machine and the pid namespace; a folder of runs
    may be shared by containers and machines. Empty if it cannot be seen.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
