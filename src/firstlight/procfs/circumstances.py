"""What a process was started with and lives in: words, environment, folders, limits, namespaces."""

import os
from typing import NamedTuple

from firstlight.procfs.reading import content


def cmdline(pid: int) -> tuple[str, ...]:
    """The command line, or the title that the process gave itself. Takes the target's mmap lock."""
    data = content(f"/proc/{pid}/cmdline").rstrip(b"\0 ")
    return tuple(part.decode(errors="replace") for part in data.split(b"\0")) if data else ()


def environ(pid: int) -> dict[str, str]:
    """The environment at exec. Takes the target's mmap lock; needs the right to ptrace it. May hold secrets."""
    entries = content(f"/proc/{pid}/environ").split(b"\0")
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries if b"=" in entry)
    return {key: value for key, _, value in pairs}


def exe(pid: int) -> str:
    """The path of the program."""
    return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115


def cwd(pid: int) -> str:
    """The working directory. Needs the right to ptrace the target."""
    return os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115


class ResourceLimit(NamedTuple):
    """One row of /proc/PID/limits: its name there ("Max open files"), soft and hard limit, -1 for none."""

    name: str
    soft: int
    hard: int


def limits(pid: int) -> list[ResourceLimit]:
    """The resource limits of a process (getrlimit(2)). Needs the right to ptrace another user's process."""
    found = []
    for row in content(f"/proc/{pid}/limits").decode(errors="replace").splitlines()[1:]:
        words = row[26:].split()
        soft, hard = (-1 if word == "unlimited" else int(word) for word in words[:2])
        found.append(ResourceLimit(row[:26].strip(), soft, hard))
    return found


def cgroup(pid: int) -> str:
    """The control groups a process lives in, as lines of "hierarchy:controllers:group" (cgroups(7))."""
    return content(f"/proc/{pid}/cgroup").decode(errors="replace")


def mountinfo(pid: int | str = "self") -> str:
    """The mounts that a process sees, one a line (proc_pid_mountinfo(5))."""
    return content(f"/proc/{pid}/mountinfo").decode(errors="replace")


def namespace(pid: int | str, kind: str) -> str:
    """A namespace that a process lives in, as "net:[inode]". Needs the right to ptrace the target."""
    return os.readlink(f"/proc/{pid}/ns/{kind}")  # noqa: PTH115


def pid_namespace() -> str:
    """The pid namespace of this process, as "pid:[inode]"."""
    return os.readlink("/proc/self/ns/pid")  # noqa: PTH115
