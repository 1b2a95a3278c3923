"""A process of the server: who it is, and one cheap sample of what it does."""

import re

from firstlight.core.gap import Gap
from firstlight.core.record import Record
from firstlight.core.vocabulary import Role


class ProcessId(Record, order=True):
    """A pid together with its start time, which together survive pid reuse.

    `started` is field 22 of /proc/PID/stat: clock ticks after boot.
    """

    pid: int
    started: int


class Process(Record):
    """Who a process is. `name` is the title it gives itself, or the program it runs, in a few words.

    `label` is the engine's own word for it ("TP0", "EngineCore"); `rank` is its number among the workers, or
    -1 where it has none.
    """

    id: ProcessId
    ppid: int
    name: str
    cmdline: tuple[str, ...]
    role: Role = Role.OTHER
    label: str = ""
    rank: int = -1


class ProcessSample(Record):
    """One cheap look at a process: counters that only grow, and levels. A field is a gap where it was refused.

    `state` is the letter of /proc/PID/stat (R, S, D, T, t, Z). `cpu_s` is user plus system time of all threads
    in seconds. `read_bytes` and `write_bytes` count what passed through read and write calls (`rchar`,
    `wchar`: pipes, sockets read with read(), page cache included); `disk_read_bytes` what was fetched from
    storage. `memory_bytes` is the resident set, `shared_bytes` its shared part. `children_cpu_s` is the CPU time of
    children that have ended and been waited for.
    """

    id: ProcessId
    state: str
    cpu_s: float
    threads: int
    major_faults: int
    memory_bytes: int
    shared_bytes: int | Gap
    read_bytes: int | Gap
    write_bytes: int | Gap
    disk_read_bytes: int | Gap
    children_cpu_s: float = 0.0


class Exit(Record):
    """How a process ended. `code` is the exit status if it exited, `signal` the signal that killed it.

    `how` is the sentence for people: "killed by signal 9 (SIGKILL), the kernel's OOM killer"; `oom` is true
    only where the kernel's own counters or log say so.
    """

    id: ProcessId
    name: str
    at: float
    code: int | Gap | None = None
    signal: int | None = None
    oom: bool = False
    role: Role = Role.OTHER
    rank: int = -1
    label: str = ""

    @property
    def clean(self) -> bool:
        """True if it is known to have exited with status 0."""
        return self.signal is None and self.code == 0

    @property
    def passing(self) -> bool:
        """True if nobody saw how it ended, and it is of a kind that comes and goes by the hundred: what a shell or a
        compiler starts.
        """
        unseen = self.signal is None and not isinstance(self.code, int)
        program = self.name.partition(" ")[0].rpartition("/")[2]
        minor = self.role in {Role.HELPER, Role.COMPILER} or (
            self.role == Role.OTHER and _OF_SHELLS.fullmatch(program)
        )
        return unseen and self.rank < 0 and bool(minor)


_OF_SHELLS = re.compile(
    "(a|ba|da|z)?sh|awk|basename|busybox|cat|cut|date|dirname|env|expr|find|grep|head|hostname|id|ls|mkdir|mktemp|nproc"
    "|ps|readlink|realpath|rm|sed|seq|sleep|sort|tail|tee|tr|uname|wc|which|xargs"
)
