"""The machine, as far as a stall may depend on it.

Price: reads.
"""

import os
import platform
import socket
from pathlib import Path

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core.gap import Gap
from firstlight.core.host import Host
from firstlight.evidence.workers import Probe

_CAP_SYS_PTRACE = 19
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


def host(clock: Clock) -> Host:
    """The machine this runs on."""
    deadline = Deadline(clock, 1.0, "the size of /dev/shm")
    shm = Probe("shared memory", lambda: os.statvfs("/dev/shm")).result(deadline)
    return Host(
        name=socket.gethostname(),
        kernel=platform.release(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=procfs.memory_total_bytes(),
        shm_bytes=shm if isinstance(shm, Gap) else shm.f_blocks * shm.f_frsize,
        shm_used_bytes=shm if isinstance(shm, Gap) else (shm.f_blocks - shm.f_bfree) * shm.f_frsize,
        may_ptrace=_may_ptrace(),
    )


def _may_ptrace() -> str:
    capable = int(procfs.status(os.getpid()).get("CapEff", "0"), 16) >> _CAP_SYS_PTRACE & 1
    try:
        scope = int(_YAMA.read_text(encoding="ascii"))
    except (OSError, ValueError):
        scope = 0
    return ptrace_rights(bool(capable), scope)


def ptrace_rights(capable: bool, yama_scope: int) -> str:
    """Which processes may be read with ptrace(2), in words; Yama's scope from its kernel documentation. Pure."""
    if yama_scope >= 3:
        return "none: kernel.yama.ptrace_scope is 3"
    if capable:
        return "any process (CAP_SYS_PTRACE)"
    if yama_scope == 2:
        return "none: kernel.yama.ptrace_scope is 2 and CAP_SYS_PTRACE is missing"
    if yama_scope == 1:
        return "own descendants only (kernel.yama.ptrace_scope is 1)"
    return "processes of the same user"
