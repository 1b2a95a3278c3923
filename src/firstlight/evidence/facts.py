"""Facts about one process: what it is allowed, where it may run, what it was told, what it has loaded.

Price: reads. Its environment and its maps take its mmap lock, which a thread that hangs in the kernel may hold for
ever; each is read in a worker of its own, so that the other facts are there whatever becomes of it.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from firstlight import procfs
from firstlight.clock import Clock, Deadline, SystemClock
from firstlight.core import redact
from firstlight.core.facts import Limit, ProcessFacts
from firstlight.core.gap import Gap
from firstlight.core.process import Process
from firstlight.evidence.cgroups import cgroup_of
from firstlight.evidence.libraries import libraries_of
from firstlight.evidence.workers import Probe

ENVIRONMENT_S = 0.9
LIBRARIES_S = 0.9
VALUE_CHARACTERS_MAX = 4096
VARIABLES_MAX = 2000
EXEC_S = 0.05
"""How long a process may show no environment because it is just in exec(2), which empties it for a moment."""

_LIMITS = {
    "Max cpu time": "cpu",
    "Max file size": "fsize",
    "Max data size": "data",
    "Max stack size": "stack",
    "Max core file size": "core",
    "Max resident set": "rss",
    "Max processes": "nproc",
    "Max open files": "nofile",
    "Max locked memory": "memlock",
    "Max address space": "as",
    "Max file locks": "locks",
    "Max pending signals": "sigpending",
    "Max msgqueue size": "msgqueue",
    "Max nice priority": "nice",
    "Max realtime priority": "rtprio",
    "Max realtime timeout": "rttime",
}
_CAPABILITIES = """
chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable net_bind_service
net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin
sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap mac_override
mac_admin syslog wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore
"""
"""Names by bit, from linux/capability.h."""

_T = TypeVar("_T")


def facts_of(process: Process, clock: Clock | None = None) -> ProcessFacts:
    """Everything of `ProcessFacts` about one process. Never raises: what a process that has gone would have told is
    a gap."""
    pid, clock = process.id.pid, clock or SystemClock()
    environ = Probe("environment", lambda: environ_after_exec(pid, clock), pid).result(
        Deadline(clock, ENVIRONMENT_S, "the environment")
    )
    known: Mapping[str, str] = {} if isinstance(environ, Gap) else environ
    libraries = Probe("libraries", lambda: libraries_of(pid, known, clock), pid)
    facts = ProcessFacts(
        limits=_or_gap(lambda: limits(pid), "limits", pid),
        environment=environ if isinstance(environ, Gap) else redacted(environ),
        cgroup=cgroup_of(pid),
        libraries=libraries.result(Deadline(clock, LIBRARIES_S, "libraries")),
    )
    facts = msgspec.structs.replace(facts, **_from_status(pid), **_from_parent(pid))
    same = _or_gap(lambda: procfs.stat_of(process.id), "facts of the process", pid)
    return _nothing(same) if isinstance(same, Gap) else facts


def _nothing(gap: Gap) -> ProcessFacts:
    return ProcessFacts(
        limits=gap,
        capabilities=gap,
        seccomp=gap,
        environment=gap,
        libraries=gap,
        locked_bytes=gap,
        swapped_bytes=gap,
    )


def limits(pid: int) -> tuple[Limit, ...]:
    """The limits of a process by the names of setrlimit(2). Raises OSError."""
    rows = procfs.limits(pid)
    return tuple(Limit(name=_LIMITS[one.name], soft=one.soft, hard=one.hard) for one in rows if one.name in _LIMITS)


def environ_after_exec(pid: int, clock: Clock) -> dict[str, str]:
    """The environment of a process, waited for while it is in the middle of exec(2). Raises OSError."""
    deadline = Deadline(clock, EXEC_S, "the end of exec")
    environ = procfs.environ(pid)
    while not environ and not deadline.passed:
        clock.sleep(EXEC_S / 5)
        environ = procfs.environ(pid)
    return environ


def redacted(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """A process's environment as it may be written, by name; values that are too long are cut."""
    shown = sorted(redact.environ(environ).items())[:VARIABLES_MAX]
    return tuple((redact.text(name)[:VALUE_CHARACTERS_MAX], value[:VALUE_CHARACTERS_MAX]) for name, value in shown)


def capabilities(mask: int) -> tuple[str, ...]:
    """The names of the bits of a set of capabilities; one that is newer than this list is called by its number."""
    bits = (bit for bit in range(mask.bit_length()) if mask >> bit & 1)
    names = _CAPABILITIES.split()
    return tuple(names[bit] if bit < len(names) else str(bit) for bit in bits)


def _from_status(pid: int) -> dict[str, object]:
    """The fields that /proc/PID/status tells; a zombie has no memory any more, and so no rows about it."""
    try:
        rows = procfs.status(pid)
    except OSError as error:
        gap = procfs.gap_from(error, "status", pid)
        return dict.fromkeys(("capabilities", "seccomp", "locked_bytes", "swapped_bytes"), gap)
    return {
        "capabilities": capabilities(int(rows.get("CapEff", "0"), 16)),
        "seccomp": int(rows.get("Seccomp", "0")),
        "cpus_allowed": rows.get("Cpus_allowed_list", ""),
        "mems_allowed": rows.get("Mems_allowed_list", ""),
        "locked_bytes": _kilobytes(rows, "VmLck") + _kilobytes(rows, "VmPin"),
        "swapped_bytes": _kilobytes(rows, "VmSwap"),
    }


def _kilobytes(rows: Mapping[str, str], name: str) -> int:
    return int(rows.get(name, "0 kB").split()[0]) * 1024


def _from_parent(pid: int) -> dict[str, object]:
    """Whether it is a fork that never called exec, and how many threads its parent has, 0 where that is hidden."""
    try:
        line = procfs.stat(pid)
        return {"forked": line.forked, "parent_threads": procfs.stat(line.ppid).threads if line.ppid else 0}
    except OSError:
        return {}


def _or_gap(read: Callable[[], _T], what: str, pid: int) -> _T | Gap:
    try:
        return read()
    except OSError as error:
        return procfs.gap_from(error, what, pid)
