"""Which processes there are, how each is at the moment, and who its parent and children are."""

import os
from typing import NamedTuple

from firstlight.core.process import ProcessId
from firstlight.procfs.reading import content
from firstlight.procfs.threads import tids

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PF_FORKNOEXEC = 0x40


def pids() -> list[int]:
    """Every process that is visible from here."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - five times faster


class Stat(NamedTuple):
    """/proc/PID/stat, the fields that are used. Times in seconds, sizes in bytes, `started` in clock ticks.

    `children_cpu_s` is what children used that ended and were waited for, and their children. `forked` is true for a
    process that was forked and has not called exec since (PF_FORKNOEXEC).
    """

    pid: int
    comm: str
    state: str
    ppid: int
    pgrp: int
    session: int
    major_faults: int
    cpu_s: float
    threads: int
    started: int
    memory_bytes: int
    exit_code: int
    children_cpu_s: float = 0.0
    forked: bool = False

    @property
    def id(self) -> ProcessId:
        return ProcessId(pid=self.pid, started=self.started)


def stat(pid: int, tid: int = 0) -> Stat:
    """The kernel's one-line summary of a process, or of its thread `tid`.

    `exit_code` is the wait status of a zombie, 0 where it may not be read.
    """
    path = f"/proc/{pid}/task/{tid}/stat" if tid else f"/proc/{pid}/stat"
    data = content(path)
    # The command may hold spaces and brackets; it ends at the last closing bracket.
    begin, end = data.index(b"("), data.rindex(b")")
    f = data[end + 2 :].split()
    return Stat(
        pid=int(data[:begin]),
        comm=data[begin + 1 : end].decode(errors="replace"),
        state=f[0].decode(),
        ppid=int(f[1]),
        pgrp=int(f[2]),
        session=int(f[3]),
        major_faults=int(f[9]),
        cpu_s=(int(f[11]) + int(f[12])) / TICKS_PER_S,
        threads=int(f[17]),
        started=int(f[19]),
        memory_bytes=int(f[21]) * PAGE_BYTES,
        exit_code=int(f[49]) if len(f) > 49 else 0,
        children_cpu_s=(int(f[13]) + int(f[14])) / TICKS_PER_S,
        forked=bool(int(f[6]) & PF_FORKNOEXEC),
    )


def stat_of(identity: ProcessId) -> Stat:
    """The stat line of a process, if its pid still means the same process.

    Raises:
        ProcessLookupError: it does not.
    """
    line = stat(identity.pid)
    if line.started != identity.started:
        raise ProcessLookupError(f"process {identity.pid} ended, and its pid was given to another")
    return line


def status(pid: int, tid: int = 0) -> dict[str, str]:
    """/proc/PID/status, or that of its thread `tid`, as a mapping."""
    path = f"/proc/{pid}/task/{tid}/status" if tid else f"/proc/{pid}/status"
    lines = content(path).decode(errors="replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def owner(pid: int) -> int:
    """The user that a process runs as."""
    return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116


def children(pid: int) -> list[int]:
    """Direct children of every thread of a process (CONFIG_PROC_CHILDREN)."""
    found: list[int] = []
    for tid in tids(pid):
        try:
            found += map(int, content(f"/proc/{pid}/task/{tid}/children").split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
