"""One look: every process of a server at one moment, its threads and files, and what surrounds it.

What a look holds is documented in docs/bundle.md, field by field.
"""

from firstlight.core.collective import CollectiveCall, Communicator
from firstlight.core.facts import NOT_ASKED, ProcessFacts
from firstlight.core.gap import Gap
from firstlight.core.gpu import Gpu
from firstlight.core.process import Process, ProcessSample
from firstlight.core.record import Record
from firstlight.core.vocabulary import GapReason


class Frame(Record):
    """One Python frame, innermost first in its stack. `code` is the source text of the line, where it was read."""

    function: str
    file: str
    line: int
    code: str = ""


class NativeFrame(Record):
    """One frame of native code, innermost first in its stack. `library` is the file's name, `function` empty where
    the file has no symbol for it."""

    function: str
    library: str = ""


class Futex(Record):
    """The futex that a thread waits for. `owner` is the thread that holds it, where it is a glibc mutex whose owner
    field names a live thread of the process (x86-64, aarch64); 0 if it is none, or nobody is known to hold it.
    `shared` for one that may lie in memory that several processes map. `orphan` is the thread that a mutex names as
    its owner although the process has none of that id (as it counts them itself): it ended with the mutex locked, or
    a fork left it behind.
    """

    address: int
    owner: int = 0
    shared: bool = False
    orphan: int = 0


class TimeLimit(Record):
    """When a sleep, poll, select or epoll ends by itself: `seconds` after the moment of the look. Where not `exact`
    the call tells its whole length alone, not when it began, and ends at most so long after the look.
    """

    seconds: float
    exact: bool


class ThreadLook(Record):
    """One thread. `syscall` is "name(arg0, arg1, …)" in hex, "running" if it was on a CPU.

    `stack` is innermost first. `owns_gil` with `active` false is a thread that blocks while it holds the
    interpreter lock. `fds` are the descriptors that the call waits for, `path` the file that it opens; both read
    from the arguments of the call, empty where it has none. `native` are its native frames and `kernel` the kernel
    functions that it is in (/proc/PID/task/TID/stack), both innermost first, empty where nobody asked. `limit` is the
    time limit of the call; without `fds` it is a sleep, which nothing but the clock or a signal ends.
    """

    tid: int
    name: str
    state: str
    cpu_s: float
    wchan: str | Gap
    syscall: str | Gap
    stack: tuple[Frame, ...] | Gap = ()
    owns_gil: bool = False
    active: bool = False
    fds: tuple[int, ...] = ()
    path: str = ""
    native: tuple[NativeFrame, ...] | Gap = ()
    kernel: tuple[str, ...] | Gap = ()
    futex: Futex | None = None
    limit: TimeLimit | None = None


NOT_COUNTED = Gap(what="bytes of the connection", reason=GapReason.NOT_SUPPORTED, detail="the kernel was not asked")


class Socket(Record):
    """A TCP or unix socket. `family`: inet, inet6, unix. Addresses as host and port (0 for a unix socket, whose
    `host` is its path). `state` as in proc_pid_net(5) ("ESTABLISHED", "SYN_SENT", "CLOSE_WAIT", "LISTEN").
    `unread` and `unsent` are bytes that wait in its queues; of a listener `unread` counts the connections that
    nobody accepts. `sent_bytes` and `received_bytes` count what has passed since it was connected, as the peer has
    confirmed it (tcp_info's bytes_acked and bytes_received).
    """

    family: str
    state: str
    host: str = ""
    port: int = 0
    peer_host: str = ""
    peer_port: int = 0
    unread: int = 0
    unsent: int = 0
    sent_bytes: int | Gap = NOT_COUNTED
    received_bytes: int | Gap = NOT_COUNTED


class OpenFile(Record):
    """An open descriptor that may matter: a regular file, FIFO, pipe, socket or device.

    `kind` is one of file, fifo, pipe, socket, device, other. `position` is the file offset.
    `access` is "r", "w" or "rw". `detail` holds for a socket its local and remote address and state. `peers` are
    the pids that hold the other end of a pipe, FIFO or local socket open, the process itself included; empty if
    nobody does. `unseen` counts the processes that could not be searched for it. `filesystem` is that of a regular
    file, empty where it was not asked; `size` its length.
    """

    fd: int
    kind: str
    target: str
    position: int = 0
    detail: str = ""
    access: str = ""
    peers: tuple[int, ...] | Gap = ()
    unseen: int = 0
    socket: Socket | None = None
    filesystem: str = ""
    size: int = 0


class Listener(Record):
    """A listening TCP port and its owner, pid 0 if no permission to tell. `backlog` counts waiting clients."""

    host: str
    port: int
    pid: int
    backlog: int = 0


class Lock(Record):
    """A lock that somebody holds, waits for, or has left behind.

    `kind`: flock, posix, ofd (from /proc/locks) or file (a bare lock file, in no kernel table). `holder` is the
    pid that holds it, 0 if nobody is known to; for a bare lock file a process that works in its folder. `waiters`
    are pids. `age_s` is the age of a bare lock file, `builders` the compilers at work for its folder. `filesystem` is
    that of the file, empty where it was not asked.
    """

    kind: str
    path: str
    holder: int
    waiters: tuple[int, ...] = ()
    age_s: float = 0.0
    holder_name: str = ""
    builders: tuple[int, ...] = ()
    filesystem: str = ""


class Semaphore(Record):
    """A POSIX semaphore in shared memory (/dev/shm/sem.NAME). `value` 0 lets nobody pass; `waiting` are the pids that
    sit in a futex on it, `mapped_by` all that have it."""

    path: str
    value: int
    waiting: tuple[int, ...] = ()
    mapped_by: tuple[int, ...] = ()


class Folder(Record):
    """A folder that grows while something works: compile and autotune caches, downloads.

    `purpose` as in `core.host.Place`, or "download". `bytes` and `files` count what lies in it, as far as was looked
    (`whole` false if there was more); `newest` is the wall time of the last change.
    """

    purpose: str
    path: str
    files: int
    bytes: int
    newest: float
    whole: bool = True


class Leftover(Record):
    """A process that an earlier run left behind (its parent is init, its program an engine's) or that is stuck in the
    kernel, and what it still holds: "port 8000", "GPU 0", "/dev/shm/psm_1". `unseen` if its files may not be seen:
    then it may hold more."""

    pid: int
    name: str
    state: str
    age_s: float
    holds: tuple[str, ...] = ()
    unseen: bool = False


class Pressure(Record):
    """How short the machine is of memory, CPU and I/O. Shares are percent of the last ten seconds in which some (or,
    for `memory_full`, all) tasks stalled (/proc/pressure); `swapped_in` and `swapped_out` count pages since boot.
    """

    memory_some: float | Gap = NOT_ASKED
    memory_full: float | Gap = NOT_ASKED
    io_some: float | Gap = NOT_ASKED
    cpu_some: float | Gap = NOT_ASKED
    memory_free_bytes: int | Gap = NOT_ASKED
    swapped_in: int | Gap = NOT_ASKED
    swapped_out: int | Gap = NOT_ASKED


NOT_LOOKED_AT = Gap(what="GPUs", reason=GapReason.NOT_SUPPORTED, detail="this look left them out")


class ProcessLook(Record):
    """One process at one moment, with everything that could be seen of it. `tracer` is the debugger's pid, or 0."""

    process: Process
    sample: ProcessSample
    tracer: int = 0
    threads: tuple[ThreadLook, ...] = ()
    files: tuple[OpenFile, ...] = ()
    gaps: tuple[Gap, ...] = ()
    facts: ProcessFacts = ProcessFacts()


class Look(Record):
    """Every process of the server, seen within `took_s` seconds of `at` (wall clock, Unix seconds).

    `monotonic` is the same moment on the clock that no jump can bend, for the difference between two looks.
    `kernel_log` are the kernel's lines about GPUs, memory and I/O errors since the server started, oldest first.
    """

    at: float
    took_s: float
    processes: tuple[ProcessLook, ...]
    monotonic: float = 0.0
    listeners: tuple[Listener, ...] | Gap = ()
    locks: tuple[Lock, ...] | Gap = ()
    gaps: tuple[Gap, ...] = ()
    semaphores: tuple[Semaphore, ...] | Gap = ()
    gpus: tuple[Gpu, ...] | Gap = NOT_LOOKED_AT
    folders: tuple[Folder, ...] = ()
    leftovers: tuple[Leftover, ...] | Gap = ()
    pressure: Pressure = Pressure()
    collectives: tuple[CollectiveCall, ...] | Gap = ()
    communicators: tuple[Communicator, ...] | Gap = ()
    kernel_log: tuple[str, ...] | Gap = ()
