"""Was it the kernel's OOM killer? Its own counters (cgroup v1 and v2) and its own log (/dev/kmsg) say so.

The counters only say that somebody in the group was killed; read often enough they say when, and whoever of the
group died of SIGKILL in that moment was it. The log names the pid, where it may be read and where pids mean the
same to the kernel and to us.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

from firstlight import cgroupfs, procfs
from firstlight.cgroupfs import Mount
from firstlight.clock import Clock
from firstlight.core.process import ProcessId

GROWTH_COUNTS_S = 10.0
"""A counter that grew this long ago no longer explains a death: a worker with much memory takes seconds to die."""

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO
_KILLED = re.compile(rb"[Kk]illed process (\d+)")


def counter_file(mounts: list[Mount], cgroup: str) -> Path | None:
    """Where the OOM kills of a process are counted, from the text of its /proc/PID/cgroup. None if nowhere."""
    for group in cgroupfs.groups(mounts, cgroup, "memory"):
        file = group.folder / ("memory.events" if group.unified else "memory.oom_control")
        if file.exists():
            return file
    return None


def oom_kills(text: str) -> int:
    """The counter in the text of memory.events (v2) or memory.oom_control (v1, Linux 4.13 on)."""
    return cgroupfs.counts(text).get("oom_kill", 0)


def killed_pids(record: bytes) -> set[int]:
    """The processes that a record of the kernel's log says the OOM killer ended."""
    return {int(pid) for pid in _KILLED.findall(record)}


class _Counter:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._value = self._read()
        self.grew_at = float("-inf")

    def sample(self, now: float) -> None:
        value = self._read()
        if value > self._value:
            self.grew_at = now
        self._value = value

    def _read(self) -> int:
        try:
            return oom_kills(self._file.read_text(encoding="ascii", errors="replace"))
        except (OSError, ValueError):
            return 0


class OomWatch:
    """Follows the counters of the groups that the watched processes live in, and the kernel's log."""

    def __init__(self, clock: Clock, *, read_kernel_log: Callable[[], bytes] | None = None) -> None:
        self._clock = clock
        self._mounts = cgroupfs.mounts()
        self._files: dict[ProcessId, Path] = {}
        self._counters: dict[Path, _Counter] = {}
        self._named: set[int] = set()
        self._read_kernel_log = read_kernel_log or KernelLog().read

    def watch(self, id_: ProcessId) -> None:
        """Find the process's group while it lives."""
        try:
            text = procfs.cgroup(id_.pid)
        except OSError:
            return
        file = counter_file(self._mounts, text)
        if file is not None:
            self._files[id_] = file
            self._counters.setdefault(file, _Counter(file))

    def forget(self, id_: ProcessId) -> None:
        """It has ended, and was judged."""
        self._files.pop(id_, None)

    def sample(self) -> None:
        """Read the counters; call it at every tick."""
        for counter in self._counters.values():
            counter.sample(self._clock.monotonic())

    def blames(self, id_: ProcessId) -> bool:
        """True if the kernel says that it killed this process, which is known to have died of SIGKILL just now."""
        self.sample()
        self._named |= killed_pids(self._read_kernel_log())
        if id_.pid in self._named:
            self._named.discard(id_.pid)
            return True
        file = self._files.get(id_)
        counter = self._counters.get(file) if file else None
        return counter is not None and self._clock.monotonic() - counter.grew_at <= GROWTH_COUNTS_S


class KernelLog:
    """/dev/kmsg from now on, without ever waiting; empty where it may not be read or names other pids than ours."""

    RECORDS_AT_ONCE = 10_000

    def __init__(self) -> None:
        self._fd = -1
        try:
            if procfs.pid_namespace() == _INITIAL_PID_NAMESPACE:
                self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            return

    def read(self) -> bytes:
        """The records since the last call."""
        records = []
        for _ in range(self.RECORDS_AT_ONCE):
            try:
                records.append(os.read(self._fd, 8192))
            except BrokenPipeError:
                continue  # records were overwritten before they were read; the next read goes on after them
            except OSError:
                break
        return b"\n".join(records)
