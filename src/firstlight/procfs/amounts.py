"""What a process has used and holds: CPU, memory, bytes read and written, as one sample."""

from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.process import ProcessId, ProcessSample
from firstlight.procfs.processes import PAGE_BYTES, stat_of
from firstlight.procfs.reading import content, gap_from


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


class Resident(NamedTuple):
    """/proc/PID/statm: the resident set and its shared part, in bytes.

    Exact since Linux 6.16, where /proc/PID/stat goes on in steps of some 256 KiB (proc_pid_statm(5)).
    """

    memory_bytes: int
    shared_bytes: int


def resident(pid: int) -> Resident:
    """What a process holds in memory."""
    fields = content(f"/proc/{pid}/statm").split()
    return Resident(int(fields[1]) * PAGE_BYTES, int(fields[2]) * PAGE_BYTES)


class Io(NamedTuple):
    """/proc/PID/io, in bytes. Needs the right to ptrace the target."""

    read_bytes: int
    write_bytes: int
    disk_read_bytes: int


def io(pid: int) -> Io:
    """What passed through read and write calls, and what was fetched from storage."""
    fields = dict(line.split(b": ") for line in content(f"/proc/{pid}/io").splitlines())
    return Io(int(fields[b"rchar"]), int(fields[b"wchar"]), int(fields[b"read_bytes"]))


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
