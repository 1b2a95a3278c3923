"""The only reader of /proc: thin, typed, one kernel file a function, no judgement.

Watching (supervise) and looking (evidence) both stand on it. Everything raises plain `OSError`: a process that is
gone gives FileNotFoundError or ProcessLookupError, one that may not be seen PermissionError; `gap_from` turns any of
them into the gap that the record needs. Fields are named as in proc(5), Linux 3.10 to 6.18.

Nothing here touches memory maps of a target (`cmdline`, `environ`, `maps`, `smaps` take its mmap lock and can block
behind a thread in D state) unless the function's docstring says so.
"""

from firstlight.procfs.amounts import sample
from firstlight.procfs.circumstances import (
    ResourceLimit,
    cgroup,
    cmdline,
    cwd,
    environ,
    exe,
    limits,
    mountinfo,
    namespace,
    pid_namespace,
)
from firstlight.procfs.descriptors import (
    FdLink,
    epoll_members,
    fd_info,
    fd_locks,
    fds,
    locks,
    socket_inode,
    sockets,
)
from firstlight.procfs.machine import (
    boot_wall_time,
    ipv6_addresses,
    kernel_command,
    meminfo,
    nvidia_version,
    pressure,
    vmstat,
)
from firstlight.procfs.mapped_memory import (
    CodeMapping,
    MappedFile,
    Mapping,
    code_mappings,
    mapped,
    mapped_files,
    mappings,
    maps,
    memory,
)
from firstlight.procfs.processes import (
    PAGE_BYTES,
    TICKS_PER_S,
    Stat,
    children,
    owner,
    pids,
    stat,
    stat_of,
    status,
)
from firstlight.procfs.reading import gap_from
from firstlight.procfs.tcp import TcpSocket, tcp_sockets
from firstlight.procfs.threads import Position, kernel_stack, position, syscall, tids, wchan

__all__ = [
    "PAGE_BYTES",
    "TICKS_PER_S",
    "CodeMapping",
    "FdLink",
    "MappedFile",
    "Mapping",
    "Position",
    "ResourceLimit",
    "Stat",
    "TcpSocket",
    "boot_wall_time",
    "cgroup",
    "children",
    "cmdline",
    "code_mappings",
    "cwd",
    "environ",
    "epoll_members",
    "exe",
    "fd_info",
    "fd_locks",
    "fds",
    "gap_from",
    "ipv6_addresses",
    "kernel_command",
    "kernel_stack",
    "limits",
    "locks",
    "mapped",
    "mapped_files",
    "mappings",
    "maps",
    "meminfo",
    "memory",
    "mountinfo",
    "namespace",
    "nvidia_version",
    "owner",
    "pid_namespace",
    "pids",
    "position",
    "pressure",
    "sample",
    "socket_inode",
    "sockets",
    "stat",
    "stat_of",
    "status",
    "syscall",
    "tcp_sockets",
    "tids",
    "vmstat",
    "wchan",
]
