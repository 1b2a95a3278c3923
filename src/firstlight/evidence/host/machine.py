"""The machine as one record.

Price: reads, and asks the resolver for names.
"""

import os
import platform
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core import redact
from firstlight.core.facts import Limit
from firstlight.core.gap import Gap
from firstlight.core.host import Host
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.cgroups import cgroup_of
from firstlight.evidence.facts import limits
from firstlight.evidence.host import system
from firstlight.evidence.host.network import interfaces, resolved
from firstlight.evidence.host.places import SHM, places, root_of
from firstlight.evidence.host.topology import topology
from firstlight.evidence.workers import Probe

PATIENCE_S = 1.0
GRACE_S = 0.1
"""So that a late answer about names tells of each name that it is late."""

_CAP_SYS_PTRACE = 19
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


def host(
    clock: Clock,
    *,
    environ: Mapping[str, str] | None = None,
    model: str = "",
    names: Sequence[str] = (),
    pid: int = 0,
) -> Host:
    """The machine this runs on, as a server with this environment and model would find it.

    `pid` is a process of the server: if it lives in a container, its file systems and /dev/shm are looked at.
    `names` are host names that the server was told; the machine's own is asked for as well, since engines do that.
    Ends within little more than a second whatever file systems and name servers do.
    """
    ends = Deadline(clock, PATIENCE_S, "file systems and host names")
    variables = os.environ if environ is None else environ
    memory, words, version = procfs.meminfo(), system.kernel_command(), system.driver()
    root = root_of(pid)
    asked = Probe("host names", partial(resolved, (socket.gethostname(), *names), ends))
    room = Probe("shared memory", lambda: os.statvfs(root.seen(SHM)))
    found, shm = places(variables, model, root, ends), room.result(ends)
    meanings = asked.result(Deadline(clock, ends.left + GRACE_S, "host names"))
    return Host(
        name=socket.gethostname(),
        kernel=platform.release(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=memory.get("MemTotal", 0),
        shm_bytes=shm if isinstance(shm, Gap) else shm.f_blocks * shm.f_frsize,
        shm_used_bytes=shm if isinstance(shm, Gap) else (shm.f_blocks - shm.f_bfree) * shm.f_frsize,
        may_ptrace=may_ptrace(),
        cpu_arch=platform.machine(),
        memory_free_bytes=_amount(memory, "MemAvailable"),
        swap_bytes=_amount(memory, "SwapTotal"),
        places=found,
        interfaces=interfaces(),
        resolved=() if isinstance(meanings, Gap) else meanings,
        topology=topology(kernel_command=words),
        driver=version,
        cuda=system.newest_cuda(version),
        kernel_command=tuple(map(redact.text, system.telling_words(words))),
        preload=system.preload(),
        numa_nodes=system.numa_nodes(),
        hugepages_bytes=system.hugepages_bytes(),
        page_bytes=procfs.PAGE_BYTES,
        clock_synchronised=system.clock_synchronised(),
        container=system.container(variables, _groups()),
        limits=_own_limits(),
        cgroup=cgroup_of(os.getpid()),
        devices=system.devices(),
    )


def _amount(memory: Mapping[str, int], row: str) -> int | Gap:
    detail = "this kernel's /proc/meminfo does not tell"
    return memory.get(row, Gap(what=row, reason=GapReason.NOT_SUPPORTED, detail=detail))


def _own_limits() -> tuple[Limit, ...] | Gap:
    try:
        return limits(os.getpid())
    except OSError as error:
        return procfs.gap_from(error, "limits")


def _groups() -> str:
    try:
        return procfs.cgroup(os.getpid())
    except OSError:
        return ""


def may_ptrace() -> str:
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
