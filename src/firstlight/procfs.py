"""The only reader of /proc: thin, typed, one file a function, no judgement.

Watching (supervise) and looking (evidence) both stand on it. Everything raises plain `OSError`: a process that is
gone gives FileNotFoundError or ProcessLookupError, one that may not be seen PermissionError; `gap_from` turns any of
them into the gap that the record needs. Fields are named as in proc(5), Linux 3.10 to 6.18.

Nothing here touches memory maps of a target (`cmdline`, `environ`, `maps`, `smaps` take its mmap lock and can block
behind a thread in D state) unless the function's docstring says so.
"""

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.process import ProcessId, ProcessSample
from firstlight.core.vocabulary import GapReason

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PF_FORKNOEXEC = 0x40


def gap_from(error: OSError, what: str, pid: int = 0) -> Gap:
    """The gap that an error from this module stands for."""
    if isinstance(error, PermissionError):
        return Gap(
            what=what,
            reason=GapReason.NO_PERMISSION,
            detail="run firstlight as the server's user, as root, or with CAP_SYS_PTRACE",
            pid=pid,
        )
    if isinstance(error, FileNotFoundError | ProcessLookupError):
        return Gap(what=what, reason=GapReason.VANISHED, detail="the process ended while it was looked at", pid=pid)
    return Gap(what=what, reason=GapReason.FAILED, detail=str(error), pid=pid)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = []
        while chunk := os.read(fd, 65536):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        os.close(fd)


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
    data = _read(path)
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


class Resident(NamedTuple):
    """/proc/PID/statm: the resident set and its shared part, in bytes.

    Exact since Linux 6.16, where /proc/PID/stat goes on in steps of some 256 KiB (proc_pid_statm(5)).
    """

    memory_bytes: int
    shared_bytes: int


def resident(pid: int) -> Resident:
    """What a process holds in memory."""
    fields = _read(f"/proc/{pid}/statm").split()
    return Resident(int(fields[1]) * PAGE_BYTES, int(fields[2]) * PAGE_BYTES)


class Io(NamedTuple):
    """/proc/PID/io, in bytes. Needs the right to ptrace the target."""

    read_bytes: int
    write_bytes: int
    disk_read_bytes: int


def io(pid: int) -> Io:
    """What passed through read and write calls, and what was fetched from storage."""
    fields = dict(line.split(b": ") for line in _read(f"/proc/{pid}/io").splitlines())
    return Io(int(fields[b"rchar"]), int(fields[b"wchar"]), int(fields[b"read_bytes"]))


def stat_of(identity: ProcessId) -> Stat:
    """The stat line of a process, if its pid still means the same process.

    Raises:
        ProcessLookupError: it does not.
    """
    line = stat(identity.pid)
    if line.started != identity.started:
        raise ProcessLookupError(f"process {identity.pid} ended, and its pid was given to another")
    return line


def sample(identity: ProcessId) -> ProcessSample:
    """The counters and levels of one process, from four small files; a refused one is a gap in its fields.

    Raises:
        ProcessLookupError: the process is gone, or its pid belongs to another process now.
    """
    line = stat_of(identity)
    amounts, memory_now = _io_or_gap(identity.pid), _resident_or_gap(identity.pid)
    return ProcessSample(
        id=identity,
        state=line.state,
        cpu_s=line.cpu_s,
        threads=line.threads,
        major_faults=line.major_faults,
        memory_bytes=line.memory_bytes if isinstance(memory_now, Gap) else memory_now.memory_bytes,
        shared_bytes=memory_now if isinstance(memory_now, Gap) else memory_now.shared_bytes,
        read_bytes=amounts if isinstance(amounts, Gap) else amounts.read_bytes,
        write_bytes=amounts if isinstance(amounts, Gap) else amounts.write_bytes,
        disk_read_bytes=amounts if isinstance(amounts, Gap) else amounts.disk_read_bytes,
        children_cpu_s=line.children_cpu_s,
    )


def _io_or_gap(pid: int) -> Io | Gap:
    try:
        return io(pid)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(str(error)) from error
    except OSError as error:
        return gap_from(error, "bytes read and written", pid)


def _resident_or_gap(pid: int) -> Resident | Gap:
    try:
        return resident(pid)
    except IndexError:  # a process that has just ended gives an empty file
        return gap_from(ProcessLookupError(), "shared memory", pid)
    except OSError as error:
        return gap_from(error, "shared memory", pid)


def cmdline(pid: int) -> tuple[str, ...]:
    """The command line, or the title that the process gave itself. Takes the target's mmap lock."""
    data = _read(f"/proc/{pid}/cmdline").rstrip(b"\0 ")
    return tuple(part.decode(errors="replace") for part in data.split(b"\0")) if data else ()


def environ(pid: int) -> dict[str, str]:
    """The environment at exec. Takes the target's mmap lock; needs the right to ptrace it. May hold secrets."""
    entries = _read(f"/proc/{pid}/environ").split(b"\0")
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries if b"=" in entry)
    return {key: value for key, _, value in pairs}


def cgroup(pid: int) -> str:
    """The control groups a process lives in, as lines of "hierarchy:controllers:group" (cgroups(7))."""
    return _read(f"/proc/{pid}/cgroup").decode(errors="replace")


def mountinfo(pid: int | str = "self") -> str:
    """The mounts that a process sees, one a line (proc_pid_mountinfo(5))."""
    return _read(f"/proc/{pid}/mountinfo").decode(errors="replace")


def namespace(pid: int | str, kind: str) -> str:
    """A namespace that a process lives in, as "net:[inode]". Needs the right to ptrace the target."""
    return os.readlink(f"/proc/{pid}/ns/{kind}")  # noqa: PTH115


def pid_namespace() -> str:
    """The pid namespace of this process, as "pid:[inode]"."""
    return os.readlink("/proc/self/ns/pid")  # noqa: PTH115


def owner(pid: int) -> int:
    """The user that a process runs as."""
    return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116


def exe(pid: int) -> str:
    """The path of the program."""
    return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115


def cwd(pid: int) -> str:
    """The working directory. Needs the right to ptrace the target."""
    return os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115


def tids(pid: int) -> list[int]:
    """The threads of a process."""
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208


def children(pid: int) -> list[int]:
    """Direct children of every thread of a process (CONFIG_PROC_CHILDREN)."""
    found: list[int] = []
    for tid in tids(pid):
        try:
            found += map(int, _read(f"/proc/{pid}/task/{tid}/children").split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def wchan(pid: int, tid: int) -> str:
    """The kernel function a thread sleeps in; empty when it runs or when it may not be seen (both read "0")."""
    name = _read(f"/proc/{pid}/task/{tid}/wchan").decode(errors="replace").strip()
    return "" if name == "0" else name


def syscall(pid: int, tid: int) -> tuple[int, tuple[int, ...]] | None:
    """The system call a thread blocks in, with its six arguments; None while it runs.

    The number is -1 for a thread that blocks outside of any system call (a page fault).
    """
    parts = _read(f"/proc/{pid}/task/{tid}/syscall").split()
    if not parts or parts[0] == b"running":
        return None
    return int(parts[0]), tuple(int(p, 16) for p in parts[1:7])


class Position(NamedTuple):
    """Where a thread that waits stands in its own code: its registers as it entered the kernel."""

    stack_pointer: int
    program_counter: int


def position(pid: int, tid: int) -> Position | None:
    """The same file as `syscall`, its last two columns; None while the thread runs."""
    parts = _read(f"/proc/{pid}/task/{tid}/syscall").split()
    return Position(int(parts[-2], 16), int(parts[-1], 16)) if len(parts) > 2 else None


def kernel_stack(pid: int, tid: int) -> tuple[str, ...]:
    """The kernel functions that a thread is in, innermost first, from lines like "[<0>] futex_wait+0x67/0x120".

    Needs CAP_SYS_ADMIN outside of any user namespace, that is root on the machine itself, and a kernel with
    CONFIG_STACKTRACE. Takes the target's exec lock, so it may block.
    """
    rows = (row.split() for row in _read(f"/proc/{pid}/task/{tid}/stack").decode(errors="replace").splitlines())
    return tuple(row[1].partition("+")[0] for row in rows if len(row) > 1)


class CodeMapping(NamedTuple):
    """Executable memory, the bytes of a file from `offset` on; `path` empty or in brackets where it is none."""

    begin: int
    end: int
    offset: int
    path: str


def code_mappings(pid: int) -> list[CodeMapping]:
    """What a process may execute, by rising address. Takes the target's mmap lock."""
    found = []
    with Path(f"/proc/{pid}/maps").open("rb") as rows:
        for row in rows:
            fields = row.rstrip(b"\n").split(maxsplit=5)
            if b"x" in fields[1]:
                begin, end = (int(number, 16) for number in fields[0].split(b"-"))
                path = fields[5].decode(errors="surrogateescape") if len(fields) > 5 else ""
                found.append(CodeMapping(begin, end, int(fields[2], 16), path))
    return found


def maps(pid: int, name: str) -> bool:
    """Whether the process maps a file with `name` in its path. Takes the target's mmap lock."""
    wanted = name.encode()
    with Path(f"/proc/{pid}/maps").open("rb") as rows:
        return any(wanted in row for row in rows)


def mapped(pid: int, under: str) -> set[str]:
    """Paths that begin with `under` among the files a process maps. Takes the target's mmap lock."""
    prefix = under.encode()
    with Path(f"/proc/{pid}/maps").open("rb") as rows:
        paths = (row.split(maxsplit=5)[5] for row in rows if prefix in row)
        return {path.strip().decode(errors="replace") for path in paths if path.startswith(prefix)}


class MappedFile(NamedTuple):
    """A file that a process maps. `device` and `inode` as the kernel tells them, `code` if any of it may be executed,
    `deleted` if its name is gone from the disk or means another file by now."""

    path: str
    device: str
    inode: int
    code: bool
    deleted: bool


def mapped_files(pid: int) -> list[MappedFile]:
    """Every file that a process maps, once, in the order of the addresses. Takes the target's mmap lock."""
    found: dict[tuple[bytes, bytes], MappedFile] = {}
    with Path(f"/proc/{pid}/maps").open("rb") as rows:
        for row in rows:
            _, mode, _, device, inode, *rest = row.split(maxsplit=5)
            if not rest or inode == b"0":
                continue
            name = rest[0].rstrip(b"\n")
            known = found.get((inode, name))
            if known is None:
                path = name.decode(errors="replace")
                gone = path.endswith(_DELETED)
                found[inode, name] = MappedFile(
                    path.removesuffix(_DELETED), device.decode(), int(inode), b"x" in mode, gone
                )
            elif b"x" in mode and not known.code:
                found[inode, name] = known._replace(code=True)
    return list(found.values())


_DELETED = " (deleted)"


class Mapping(NamedTuple):
    """One row of /proc/PID/maps: where a file lies in a process's memory. `file` is its device and inode."""

    begin: int
    end: int
    file: tuple[str, int]
    path: str


def mappings(pid: int, under: str) -> list[Mapping]:
    """Where a process maps files whose path begins with `under`. Takes the target's mmap lock."""
    prefix = under.encode()
    found = []
    with Path(f"/proc/{pid}/maps").open("rb") as rows:
        for row in rows:
            if prefix in row and len(f := row.rstrip(b"\n").split(maxsplit=5)) == 6 and f[5].startswith(prefix):
                begin, end = (int(part, 16) for part in f[0].split(b"-"))
                found.append(Mapping(begin, end, (f[3].decode(), int(f[4])), f[5].decode(errors="replace")))
    return found


def memory(pid: int, address: int, length: int) -> bytes:
    """Up to `length` bytes of a process's memory, without stopping it.

    Takes the target's mmap lock; needs the right to ptrace it. Shorter where the mapping ends.
    """
    fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, length, address)
    finally:
        os.close(fd)


class FdLink(NamedTuple):
    """One entry of /proc/PID/fd."""

    fd: int
    target: str


def fds(pid: int) -> Iterator[FdLink]:
    """Open descriptors and what they point at. Needs the right to ptrace the target."""
    for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
        try:
            yield FdLink(int(name), os.readlink(f"/proc/{pid}/fd/{name}"))  # noqa: PTH115
        except FileNotFoundError:
            continue


def sockets(pid: int) -> Iterator[int]:
    """For every open descriptor the inode of its socket, 0 if it is none. Needs the right to ptrace the target.

    Reads as it goes, so a process with a million descriptors costs no more than is asked for.
    """
    folder = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    target = os.readlink(entry.name, dir_fd=folder)
                except FileNotFoundError:
                    continue
                yield socket_inode(target) if target.startswith("socket:[") else 0
    finally:
        os.close(folder)


def fd_info(pid: int, fd: int) -> dict[str, str]:
    """/proc/PID/fdinfo/FD as a mapping: pos, flags, and more by kind."""
    lines = _read(f"/proc/{pid}/fdinfo/{fd}").decode(errors="replace").splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def fd_locks(pid: int, fd: int) -> list[str]:
    """The locks that belong to an open file, as lines of /proc/locks, from its fdinfo."""
    rows = _read(f"/proc/{pid}/fdinfo/{fd}").decode(errors="replace").splitlines()
    return [row.removeprefix("lock:").strip() for row in rows if row.startswith("lock:")]


def locks() -> str:
    """/proc/locks: every lock that the kernel knows of, held or waited for."""
    return _read("/proc/locks").decode(errors="replace")


def epoll_members(pid: int, fd: int) -> list[int]:
    """The descriptors that an epoll set watches, from the `tfd:` lines of its fdinfo."""
    rows = (row.split() for row in _read(f"/proc/{pid}/fdinfo/{fd}").splitlines() if row.startswith(b"tfd:"))
    return [int(row[1]) for row in rows]


class ResourceLimit(NamedTuple):
    """One row of /proc/PID/limits: its name there ("Max open files"), soft and hard limit, -1 for none."""

    name: str
    soft: int
    hard: int


def limits(pid: int) -> list[ResourceLimit]:
    """The resource limits of a process (getrlimit(2)). Needs the right to ptrace another user's process."""
    found = []
    for row in _read(f"/proc/{pid}/limits").decode(errors="replace").splitlines()[1:]:
        words = row[26:].split()
        soft, hard = (-1 if word == "unlimited" else int(word) for word in words[:2])
        found.append(ResourceLimit(row[:26].strip(), soft, hard))
    return found


def status(pid: int, tid: int = 0) -> dict[str, str]:
    """/proc/PID/status, or that of its thread `tid`, as a mapping."""
    path = f"/proc/{pid}/task/{tid}/status" if tid else f"/proc/{pid}/status"
    lines = _read(path).decode(errors="replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


class TcpSocket(NamedTuple):
    """One row of /proc/net/tcp or tcp6. `inode` is 0 for a connection that no process owns any more.

    `receive_queue` counts unread bytes, for a listener the connections waiting to be accepted.
    """

    local: tuple[str, int]
    remote: tuple[str, int]
    state: str
    send_queue: int
    receive_queue: int
    inode: int


_TCP_STATES = {
    "01": "ESTABLISHED",
    "02": "SYN_SENT",
    "03": "SYN_RECV",
    "04": "FIN_WAIT1",
    "05": "FIN_WAIT2",
    "06": "TIME_WAIT",
    "07": "CLOSE",
    "08": "CLOSE_WAIT",
    "09": "LAST_ACK",
    "0A": "LISTEN",
    "0B": "CLOSING",
    "0C": "NEW_SYN_RECV",
}


def _address(hexes: str) -> tuple[str, int]:
    host, port = hexes.split(":")
    words = [int(host[i : i + 8], 16) for i in range(0, len(host), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, packed).removeprefix("::ffff:"), int(port, 16)


def tcp_sockets(pid: int | str = "self") -> list[TcpSocket]:
    """Every TCP socket of the network namespace that `pid` lives in."""
    found = []
    for table in ("tcp", "tcp6"):
        try:
            rows = _read(f"/proc/{pid}/net/{table}").decode().splitlines()[1:]
        except FileNotFoundError:
            continue  # no IPv6 on this machine
        for row in rows:
            f = row.split()
            send, receive = f[4].split(":")
            found.append(
                TcpSocket(
                    _address(f[1]),
                    _address(f[2]),
                    _TCP_STATES.get(f[3], f[3]),
                    int(send, 16),
                    int(receive, 16),
                    int(f[9]),
                )
            )
    return found


def socket_inode(target: str) -> int:
    """The inode in a descriptor's target "socket:[123]" or "pipe:[123]"; 0 for anything else."""
    if target.endswith("]") and target.startswith(("socket:[", "pipe:[")):
        return int(target[target.index("[") + 1 : -1])
    return 0


def boot_wall_time() -> float:
    """Unix time of the boot, from /proc/stat; turns a start time in ticks into wall time."""
    for line in _read("/proc/stat").splitlines():
        if line.startswith(b"btime "):
            return float(line.split()[1])
    return 0.0


def memory_total_bytes() -> int:
    """Installed memory."""
    return meminfo()["MemTotal"]


def meminfo() -> dict[str, int]:
    """/proc/meminfo, in bytes; the few rows without a unit (HugePages_Total) are counts."""
    rows = (row.split() for row in _read("/proc/meminfo").decode().splitlines())
    return {row[0].rstrip(":"): int(row[1]) * (1024 if row[2:] else 1) for row in rows}


def vmstat() -> dict[str, int]:
    """/proc/vmstat: counts since boot, in pages where they count memory."""
    rows = (row.split() for row in _read("/proc/vmstat").decode().splitlines())
    return {row[0]: int(row[1]) for row in rows}


def pressure(resource: str) -> dict[str, float]:
    """Stalls for want of "memory", "io" or "cpu", in percent of the last ten seconds: of "some" tasks, of "full".

    Not there without CONFIG_PSI, and refused (EOPNOTSUPP) where it is switched off.
    """
    rows = (row.split() for row in _read(f"/proc/pressure/{resource}").decode().splitlines())
    return {row[0]: float(row[1].removeprefix("avg10=")) for row in rows}


def kernel_command() -> tuple[str, ...]:
    """The words that the kernel was booted with."""
    return tuple(_read("/proc/cmdline").decode(errors="replace").split())


def nvidia_version() -> str:
    """What the NVIDIA kernel module says of itself, first line; not there without the module."""
    return _read("/proc/driver/nvidia/version").decode(errors="replace").partition("\n")[0]


def ipv6_addresses() -> list[tuple[str, bytes]]:
    """Interfaces with their IPv6 addresses (16 bytes each); none on a machine without IPv6."""
    try:
        rows = [row.split() for row in _read("/proc/net/if_inet6").decode().splitlines()]
    except FileNotFoundError:
        return []
    return [(row[5], bytes.fromhex(row[0])) for row in rows]
