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


def have_standard_streams() -> None:
    """Open those of stdin, stdout and stderr that whoever started this process has closed, on /dev/null.

    Otherwise the next socket gets the number 2, and the log is written into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest free number, this one


def cache_folder() -> Path:
    """$FIRSTLIGHT_CACHE, else $XDG_CACHE_HOME/firstlight, else ~/.cache/firstlight; a user without a home has it
    in /, where it can only be written to by those who may."""
    if own := os.environ.get("FIRSTLIGHT_CACHE"):
        return Path(own).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(xdg) if xdg.startswith("/") else _home() / ".cache") / "firstlight"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # $HOME is not set, and passwd(5) does not know the user
        return Path("/")
