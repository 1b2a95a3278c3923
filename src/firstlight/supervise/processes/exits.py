"""How processes end: status, signal and hour of death, also of those that are nobody's children here.

A pidfd per process tells the moment. The status comes from the first of: PIDFD_GET_INFO with PIDFD_INFO_EXIT
(Linux 6.15 on, once the process was reaped, by whomever), the zombie's line in /proc, the guard's report; else it
is a gap.
"""

import fcntl
import os
import queue
import resource
import select
import struct
import sys
import threading
from collections import deque
from dataclasses import dataclass

from firstlight import procfs
from firstlight.clock import Clock
from firstlight.core.gap import Gap
from firstlight.core.process import Exit, Process, ProcessId
from firstlight.core.vocabulary import GapReason
from firstlight.supervise.processes.oom import OomWatch

TICK_S = 60.0
REPORTED_MAX = 1000
"""How many of those reported are remembered, so that none is reported twice when the guard tells of it later."""
PIDFDS_SHARE = 4
"""At most a quarter of the descriptors that this process may have are spent on pidfds; others need some, too."""
STATUS_WAIT_S = 1.0
"""How long a death may wait for its status: for its parent to reap it, or the guard to report."""

# struct pidfd_info of linux/pidfd.h, its first published size: mask, cgroupid, eleven ids, exit_code.
_PIDFD_INFO = struct.Struct("=QQ11Ii")
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = 3 << 30 | _PIDFD_INFO.size << 16 | 0xFF << 8 | 11


def exit_of(id_: ProcessId, name: str, status: int | Gap, at: float, *, oom: bool = False) -> Exit:
    """The record of an exit from a wait status as waitpid(2) has it."""
    if isinstance(status, Gap):
        return Exit(id=id_, name=name, at=at, code=status, oom=oom)
    if os.WIFSIGNALED(status):
        return Exit(id=id_, name=name, at=at, signal=os.WTERMSIG(status), oom=oom)
    return Exit(id=id_, name=name, at=at, code=os.WEXITSTATUS(status), oom=oom)


def status_by_pidfd(pidfd: int) -> int | None:
    """The wait status of a process that was reaped; None before that, or before Linux 6.15."""
    info = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, *([0] * 13)))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info, True)
    except OSError:
        return None
    mask, *_, status = _PIDFD_INFO.unpack(info)
    return int(status) if mask & _PIDFD_INFO_EXIT else None


def status_by_zombie(id_: ProcessId) -> int | None:
    """The wait status of a process that nobody has reaped yet; None if it was, or may not be read."""
    try:
        stat = procfs.stat(id_.pid)
        if stat.id != id_ or stat.state not in "ZX":
            return None
        # The kernel shows 0 instead of the status to whoever may not ptrace; a 0 counts only from our own.
        trusted = stat.exit_code or os.geteuid() in (0, procfs.owner(id_.pid))
    except OSError:
        return None
    return stat.exit_code if trusted else None


@dataclass
class _Watched:
    id: ProcessId
    process: Process
    pidfd: int = -1
    died_at: float = 0.0
    status: int | None = None


class ExitWatch:
    """Watches processes until their end. `poll` tells who has died, in the order of death.

    A thread of its own waits for the pidfds, so that the hour is right even while the watcher is busy.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: dict[ProcessId, _Watched] = {}
        self._by_fd: dict[int, _Watched] = {}
        self._dead: list[_Watched] = []
        self._deaths: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
        self._told: dict[ProcessId, int] = {}
        self._reported: deque[ProcessId] = deque(maxlen=REPORTED_MAX)
        self._pidfds_max = _descriptors() // PIDFDS_SHARE
        self._epoll = select.epoll()
        self._closing = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._closing, select.EPOLLIN)
        self._oom = OomWatch(clock)
        self._thread = threading.Thread(target=self._wait_for_deaths, name="firstlight: exits", daemon=True)
        self._thread.start()

    def watch(self, id_: ProcessId, process: Process | None = None) -> None:
        """Watch this process, or learn its new title. One that is gone already is reported by the next polls."""
        if id_ in self._reported:
            return
        who = process or Process(id=id_, ppid=0, name="", cmdline=())
        known = self._watched.get(id_)
        if known is not None:
            known.process = who
            return
        watched = _Watched(id_, who)
        self._watched[id_] = watched
        self._oom.watch(id_)
        if len(self._by_fd) >= self._pidfds_max:
            return  # the process tree will tell, see `gone`
        try:
            self._await_death(watched)
        except (FileNotFoundError, ProcessLookupError):
            self._buried(watched, self._clock.wall())
        except (OSError, AttributeError):
            return  # no pidfds here, or no descriptors left

    def told(self, exits: list[Exit]) -> None:
        """What the guard reports: the status where the kernel has forgotten it, and deaths that nobody watched."""
        for exit_ in exits:
            status = exit_.signal if exit_.signal is not None else exit_.code
            if not isinstance(status, int):
                continue
            self._told[exit_.id] = status if exit_.signal is not None else status << 8
            if exit_.id not in self._watched and exit_.id not in self._reported:
                unwatched = _Watched(exit_.id, Process(id=exit_.id, ppid=0, name=exit_.name, cmdline=()))
                self._watched[exit_.id] = unwatched
                self._buried(unwatched, exit_.at)

    def gone(self, ids: tuple[ProcessId, ...]) -> None:
        """Processes that the tree no longer finds; only news where their pidfds could not be watched."""
        for id_ in ids:
            watched = self._watched.get(id_)
            if watched is not None and watched.pidfd < 0 and not watched.died_at:
                self._buried(watched, self._clock.wall())

    def poll(self) -> list[Exit]:
        """Who has died since the last call; never blocks."""
        self._oom.sample()
        while not self._deaths.empty():
            fd, at = self._deaths.get_nowait()
            self._buried(self._by_fd.pop(fd), at)
        ready = []
        for dead in sorted(self._dead, key=lambda dead: dead.died_at):
            if not self._resolve(dead):
                break  # the order of death is kept: who died later waits for who died first
            ready.append(self._exit(dead))
        return ready

    def close(self) -> None:
        """Stop watching."""
        os.eventfd_write(self._closing, 1)
        self._thread.join(timeout=2.0)
        self._epoll.close()
        os.close(self._closing)
        for watched in self._watched.values():
            if watched.pidfd >= 0:
                os.close(watched.pidfd)
        self._watched.clear()

    def _wait_for_deaths(self) -> None:
        while True:
            for fd, _ in self._epoll.poll(TICK_S):
                if fd == self._closing:
                    return
                self._deaths.put((fd, self._clock.wall()))

    def _await_death(self, watched: _Watched) -> None:
        pidfd = _open_pidfd(watched.id)
        self._by_fd[pidfd] = watched
        try:
            self._epoll.register(pidfd, select.EPOLLIN | select.EPOLLONESHOT)
        except OSError:
            del self._by_fd[pidfd]
            os.close(pidfd)
            raise
        watched.pidfd = pidfd

    def _buried(self, watched: _Watched, at: float) -> None:
        watched.died_at = at
        self._dead.append(watched)

    def _resolve(self, dead: _Watched) -> bool:
        """True once the status is known, or is not worth waiting for any longer."""
        dead.status = status_by_pidfd(dead.pidfd) if dead.pidfd >= 0 else None
        if dead.status is None:
            dead.status = status_by_zombie(dead.id)
        if dead.status is None:
            dead.status = self._told.get(dead.id)
        return dead.status is not None or self._clock.wall() - dead.died_at > STATUS_WAIT_S

    def _exit(self, dead: _Watched) -> Exit:
        self._dead.remove(dead)
        if dead.pidfd >= 0:
            os.close(dead.pidfd)
        del self._watched[dead.id]
        self._told.pop(dead.id, None)
        self._reported.append(dead.id)
        status: int | Gap = (
            dead.status if dead.status is not None else _no_status(dead.id, was_watched=dead.pidfd >= 0)
        )
        who = dead.process
        seen = exit_of(dead.id, who.name, status, dead.died_at)
        oom = seen.signal == 9 and self._oom.blames(dead.id)
        self._oom.forget(dead.id)
        return Exit(
            id=seen.id,
            name=seen.name,
            at=seen.at,
            code=seen.code,
            signal=seen.signal,
            oom=oom,
            role=who.role,
            rank=who.rank,
            label=who.label,
        )


def _descriptors() -> int:
    """How many this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize


def _open_pidfd(id_: ProcessId) -> int:
    pidfd = os.pidfd_open(id_.pid)
    try:
        if procfs.stat(id_.pid).id == id_:
            return pidfd
    except OSError:
        os.close(pidfd)
        raise
    os.close(pidfd)
    raise ProcessLookupError(id_.pid)


def _no_status(id_: ProcessId, *, was_watched: bool) -> Gap:
    if not was_watched:
        detail = "it was gone before it could be watched"
        return Gap(what="exit status", reason=GapReason.VANISHED, detail=detail, pid=id_.pid)
    return Gap(
        what="exit status",
        reason=GapReason.NOT_SUPPORTED,
        detail="its parent took the status; Linux 6.15 and later would still tell",
        pid=id_.pid,
    )
