"""The fault zoo: which program is stuck for which reason, who is to blame, and what must be seen of it.

`planted` starts one and waits until it is stuck. For faults that end a process, which only a watcher sees, there is
`scenarios`.
"""

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from firstlight import procfs
from firstlight.testing.marked import MARK, kill_marked, marked, title_of

SETTLES_S = 1.0
"""From the last word of a program to where it blocks; the looks' own difference is what proves that it does."""
STARTS_S = 90.0
_POLL_S = 0.1
_WORD = b"stuck\n"


@dataclass(frozen=True)
class Fault:
    """`program` with `options` is stuck because of `cause`, which must be told with `certainty`.

    `blamed` is the title of the process to be named, empty where it is the program itself; None where nobody is to
    blame. `shows` is a regular expression that the evidence must match. `stuck` counts the processes or threads that
    say they are. `needs` are what the machine must have: "root", "cgroup v1", "memory
    cgroup", "fuse", "cc", "x86_64". `burns` says that it
    computes all the time. An empty `cause` is one that cannot be known from outside: the answer must be unknown.
    """

    program: str
    cause: str
    shows: str = ""
    options: tuple[str, ...] = ()
    certainty: str = "established"
    blamed: str | None = ""
    stuck: int = 1
    needs: tuple[str, ...] = ()
    burns: bool = False

    @property
    def name(self) -> str:
        """The program and its options, as one word."""
        return "_".join([self.program, *(option.strip("-") for option in self.options)])

    def missing(self) -> str:
        """What the machine lacks for it, empty if nothing."""
        return ", ".join(need for need in self.needs if not has(need))


FAULTS = (
    Fault("mutex_inversion", "deadlock", r"mutex at 0x", stuck=2),
    Fault("mutex_inversion", "deadlock", r"interpreter lock \(GIL\)$", ("--hold-gil",)),
    Fault("mutex_self", "deadlock", r"mutex at 0x", needs=("x86_64",)),
    Fault("fork_in_threads", "fork_in_threads", r"fork", blamed="worker_TP0", certainty="supported"),
    Fault("flock_held", "file_lock_held", r"fused_moe\.lock", blamed="worker_TP0"),
    Fault("download_lock", "download_lock", r"\.lock", blamed="worker_TP0"),
    Fault("gil_held", "gil_held", r"sem_wait|futex", certainty="supported"),
    Fault(
        "semaphore_never_posted", "semaphore_never_posted", r"semaphore", blamed=None, certainty="supported", stuck=2
    ),
    Fault("condition_never_signalled", ""),
    Fault("thread_never_ends", ""),
    Fault("traced", "traced_process", r"state t", blamed="worker_TP0", needs=("root",)),
    Fault("full_pipe", "queue_full", r"pipe|write", certainty="supported"),
    Fault("full_socket", "socket_full", r"unsent|unread", blamed="EngineCore"),
    Fault("nobody_accepts", "accept_queue", r"accept", certainty="supported"),
    Fault("zmq_no_reply", "zmq_no_reply", r"EngineCore|ipc|recv", blamed="EngineCore", certainty="supported"),
    Fault("vfork_child", "", needs=("x86_64",)),
    Fault(
        "mismatched_collective",
        "mismatched_collective",
        r"all_reduce|broadcast",
        certainty="supported",
        blamed=None,
        stuck=2,
    ),
    Fault("mismatched_collective", "", r"all_reduce", ("--how", "group"), stuck=2),
    Fault("mismatched_collective", "mismatched_collective", r"recv", ("--how", "receive"), "supported", None, 2),
    Fault(
        "uneven_autotune", "autotune", r"autotune", certainty="supported", blamed="worker_TP2", stuck=3, burns=True
    ),
    Fault("master_black_hole", "rendezvous_unreachable", r"SYN[_-]SENT", blamed="worker_TP1"),
    Fault("nobody_listens", "rendezvous_unreachable", r"nobody listens", blamed="worker_TP1", certainty="supported"),
    Fault("nobody_listens", "ipv6", r"::1", ("--ipv6",), blamed="worker_TP1", certainty="supported"),
    Fault("proxy_swallows_warmup", "http_proxy", r"http_proxy"),
    Fault("unresolvable_host", "unresolvable_host", r"head-node\.invalid", blamed="worker_TP1"),
    Fault("stuck_download", "download_stuck", r"incomplete", blamed="worker_TP0", certainty="supported"),
    Fault("shm_full", "shm_too_small", r"/dev/shm", blamed=None, stuck=2, needs=("root",)),
    Fault("pids_limit", "cgroup_pids", r"pids|processes", blamed=None, needs=("root", "cgroup v1")),
    Fault("open_files", "ulimit", r"nofile|open files", blamed=None),
    Fault("preload_blocks", "preload_shim", r"libvgpu_limit", blamed="python -c", needs=("cc", "x86_64")),
    Fault("missing_main_guard", "missing_main_guard", r"bootstrapping", blamed=None),
    Fault("builds_in_folder", "slow_jit", r"cicc", stuck=2, blamed=None, burns=True),
    Fault("builds_in_folder", "jit_build_failure", r"cicc|ninja|nvcc", ("--fails",), stuck=2, blamed=None),
    Fault("slow_weights_loader", "slow_storage", r"fuse", blamed="worker_TP0", needs=("root", "fuse")),
    Fault(
        "rereads_loader",
        "slow_storage",
        r"fetched \d+ pages",
        certainty="supported",
        blamed="worker_TP0",
        needs=("root", "memory cgroup"),
        burns=True,
    ),
    Fault("leftover_holds_port", "port_in_use", r"EngineCore|listens", blamed=None),
)


@dataclass(frozen=True)
class Planted:
    """A fault that has struck. `pid` is its first process."""

    fault: Fault
    pid: int
    mark: str
    output: Path

    def pid_of(self, title: str) -> int:
        """The process that calls itself `title`, the first one where it is empty.

        Raises:
            AssertionError: there is none.
        """
        if not title:
            return self.pid
        titles = {pid: title_of(pid) for pid in marked(self.mark)}
        found = [pid for pid, name in titles.items() if title in name]
        assert found, f"no process is called {title}: {titles}"
        return found[0]


@contextlib.contextmanager
def planted(fault: Fault, folder: Path) -> Iterator[Planted]:
    """Start a fault and wait until it has struck; in the end nothing of it is left.

    Raises:
        AssertionError: it ended, or did not say that it is stuck.
    """
    mark = uuid.uuid4().hex
    output = folder / f"{fault.name}.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            command_of(fault.program, *fault.options),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(folder), "HOME": str(folder), MARK: mark},
            start_new_session=True,
        )
    try:
        _until_stuck(process, output, fault.stuck)
        yield Planted(fault, process.pid, mark, output)
    finally:
        kill_marked(mark)
        process.kill()
        process.wait()
        remove_control_groups()


def command_of(program: str, *options: str) -> list[str]:
    """The command line that runs a fault with this interpreter."""
    return [sys.executable, "-m", f"firstlight.testing.faults.{program}", *options]


def _until_stuck(process: "subprocess.Popen[bytes]", output: Path, times: int) -> None:
    ends = time.monotonic() + STARTS_S
    while output.read_bytes().count(_WORD) < times:
        said = output.read_text(errors="replace")
        assert process.poll() is None, f"it ended with {process.returncode}\n{said[-4000:]}"
        assert time.monotonic() < ends, f"it is not stuck after {STARTS_S:.0f} s\n{said[-4000:]}"
        time.sleep(_POLL_S)
    time.sleep(SETTLES_S)


def has(need: str) -> bool:
    """Whether the machine has what a fault needs."""
    if need == "root":
        return os.geteuid() == 0
    if need == "cgroup v1":
        return os.access("/sys/fs/cgroup/pids/cgroup.procs", os.W_OK)
    if need == "memory cgroup":
        return any(os.access(f"/sys/fs/cgroup/{path}", os.W_OK) for path in ("memory/cgroup.procs", "memory.max"))
    if need == "fuse":
        return os.access("/dev/fuse", os.R_OK | os.W_OK)
    if need == "x86_64":
        return os.uname().machine == "x86_64"
    return any(os.access(Path(folder) / need, os.X_OK) for folder in os.get_exec_path())


def remove_control_groups() -> None:
    """Those that faults made, once the last of their processes is gone."""
    for group in Path("/sys/fs/cgroup").glob("*/firstlight-*"):
        with contextlib.suppress(OSError):
            if not (group / "cgroup.procs").read_text().strip():
                group.rmdir()


def lives(pid: int) -> bool:
    """Whether a process is still there."""
    with contextlib.suppress(OSError):
        return procfs.stat(pid).state not in "ZX"
    return False
