"""The bundle: all that was seen of a server about one moment, written once and judged as often as you like.

A file stands between looking and judging. Probes fill a bundle; diagnosis is a pure function of it. The format
is documented in docs/bundle.md; `BUNDLE_VERSION` moves with every change of meaning, older versions stay readable,
newer ones are refused by name.
"""

import msgspec

from firstlight.core.gap import Gap
from firstlight.core.log import LogLine, PhaseSpan
from firstlight.core.process import Exit, Process, ProcessSample
from firstlight.core.record import Record
from firstlight.core.vocabulary import Phase
from firstlight.errors import BundleError

BUNDLE_FORMAT = "firstlight-bundle"
BUNDLE_VERSION = 1
BUNDLE_BYTES_MAX = 256 * 1024 * 1024


class Frame(Record):
    """One Python frame, innermost first in its stack. `code` is the source text of the line, where it was read."""

    function: str
    file: str
    line: int
    code: str = ""


class ThreadLook(Record):
    """One thread. `syscall` is "name(arg0, arg1, …)" in hex, "running" if it was on a CPU.

    `stack` is innermost first. `owns_gil` with `active` false is a thread that blocks while it holds the
    interpreter lock. `fds` are the descriptors that the call waits for, `path` the file that it opens; both read
    from the arguments of the call, empty where it has none.
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


class OpenFile(Record):
    """An open descriptor that may matter: a regular file, FIFO, pipe, socket or device.

    `kind` is one of file, fifo, pipe, socket, device, other. `position` is the file offset.
    `access` is "r", "w" or "rw". `detail` holds for a socket its local and remote address and state. `peers` are
    the pids that hold the other end of a pipe, FIFO or local socket open, the process itself included; empty if
    nobody does. `unseen` counts the processes that could not be searched for it.
    """

    fd: int
    kind: str
    target: str
    position: int = 0
    detail: str = ""
    access: str = ""
    peers: tuple[int, ...] | Gap = ()
    unseen: int = 0


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
    are pids. `age_s` is the age of a bare lock file.
    """

    kind: str
    path: str
    holder: int
    waiters: tuple[int, ...] = ()
    age_s: float = 0.0
    holder_name: str = ""


class ProcessLook(Record):
    """One process at one moment, with everything that could be seen of it. `tracer` is the debugger's pid, or 0."""

    process: Process
    sample: ProcessSample
    tracer: int = 0
    threads: tuple[ThreadLook, ...] = ()
    files: tuple[OpenFile, ...] = ()
    gaps: tuple[Gap, ...] = ()


class Look(Record):
    """Every process of the server, seen within `took_s` seconds of `at` (wall clock, Unix seconds).

    `monotonic` is the same moment on the clock that no jump can bend, for the difference between two looks.
    """

    at: float
    took_s: float
    processes: tuple[ProcessLook, ...]
    monotonic: float = 0.0
    listeners: tuple[Listener, ...] | Gap = ()
    locks: tuple[Lock, ...] | Gap = ()
    gaps: tuple[Gap, ...] = ()


class LogTail(Record):
    """The last words of one source of the log (a rank, or a whole stream where lines do not say who speaks)."""

    source: str
    lines: tuple[LogLine, ...]
    first_error: LogLine | None = None


class Host(Record):
    """The machine, as far as it matters here."""

    name: str
    kernel: str
    cpus: int
    memory_bytes: int
    shm_bytes: int | Gap
    shm_used_bytes: int | Gap
    may_ptrace: str


class Bundle(Record, kw_only=True):
    """All that was seen about one moment.

    `quiet_since` is the wall time of the last progress signal. `looks` holds two or more looks some seconds
    apart, since "slow or stuck" is a difference. `command` is redacted. `question` is what came of asking
    the server for a token, empty if nothing was asked yet or it was answered.
    `watchers` are the pids of firstlight itself.
    """

    format: str = BUNDLE_FORMAT
    version: int = BUNDLE_VERSION
    made_by: str
    run: str
    at: float
    engine: str
    engine_version: str
    command: tuple[str, ...]
    phase: Phase
    quiet_since: float
    host: Host
    timeline: tuple[PhaseSpan, ...] = ()
    looks: tuple[Look, ...] = ()
    exits: tuple[Exit, ...] = ()
    logs: tuple[LogTail, ...] = ()
    gaps: tuple[Gap, ...] = ()
    question: str = ""
    watchers: tuple[int, ...] = ()


class _Header(msgspec.Struct):
    format: str
    version: int


def read_bundle(data: bytes) -> Bundle:
    """Parse a bundle.

    Raises:
        BundleError: not JSON, truncated, too large, not a bundle, from a newer firstlight, or with unknown fields.
    """
    if len(data) > BUNDLE_BYTES_MAX:
        raise BundleError(
            f"the bundle is {len(data)} bytes long; the most that is read is {BUNDLE_BYTES_MAX}",
            "Is this a bundle? firstlight writes them as bundle-1.json, bundle-2.json … into the folder of a run.",
        )
    try:
        header = msgspec.json.decode(data, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(
            f"this is not a bundle, or only part of one: {error}",
            "`firstlight attach PID` writes a new one for a server that stalls.",
        ) from error
    if header.format != BUNDLE_FORMAT:
        raise BundleError(f"this is a {header.format!r} file, not a {BUNDLE_FORMAT}")
    if header.version > BUNDLE_VERSION:
        raise BundleError(
            f"the bundle has version {header.version}, and this firstlight reads up to {BUNDLE_VERSION}",
            "Read it with a newer firstlight",
        )
    try:
        return msgspec.json.decode(data, type=Bundle)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"the bundle does not fit its own version: {error}") from error
