"""A server that was running already: watched in the same way, never signalled, never ended."""

import os
import stat as stat_module
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from firstlight import procfs
from firstlight.clock import Clock
from firstlight.core.gap import Gap
from firstlight.core.process import Exit, Process, ProcessId
from firstlight.core.vocabulary import GapReason, Role
from firstlight.engines import profile, recognise
from firstlight.errors import CannotLook, RunNotFound
from firstlight.supervise.launch.family import RUN_VARIABLE
from firstlight.supervise.launch.server import StopResult
from firstlight.supervise.log.capture import LogFollower
from firstlight.supervise.runs.folders import find_run

_PARTS = frozenset({Role.ENGINE, Role.WORKER})
_STREAMS = ((1, "stdout"), (2, "stderr"))


class Attached:
    """The target of `firstlight attach`. Its log is followed where stdout or stderr is a regular file."""

    def __init__(self, pid: int, clock: Clock) -> None:
        """Attach to the server whose first process is `pid`.

        Raises:
            RunNotFound: there is no such process.
            CannotLook: it may not be seen.
        """
        try:
            stat = procfs.stat(pid)
        except (FileNotFoundError, ProcessLookupError) as error:
            raise RunNotFound(
                f"there is no process {pid}", "`ps -ef` lists them; a port is given as :8000"
            ) from error
        except PermissionError as error:
            raise CannotLook(f"process {pid} may not be seen", "Run firstlight as root or as its user") from error
        if stat.state in "ZX":
            raise RunNotFound(f"process {pid} ({stat.comm}) has ended; only its parent has not noticed yet")
        self.root: ProcessId = stat.id
        self.started = procfs.boot_wall_time() + stat.started / procfs.TICKS_PER_S
        self.environ: Mapping[str, str] = command_of(pid)[1]
        self.reapers: tuple[int, ...] = ()
        self._followers, self.gaps = _logs_of(pid, clock)

    @property
    def own_pids(self) -> tuple[int, ...]:
        return (os.getpid(),)

    def followers(self) -> list[LogFollower]:
        return self._followers

    def reported_exits(self) -> list[Exit]:
        """Nobody reports to us: the server is not our child."""
        return []

    def tend(self, processes: Iterable[Process]) -> None:
        """Nothing: what the server holds is its own affair."""

    def stop(self, grace_s: float, while_waiting: Callable[[], None]) -> StopResult:
        """Nothing: a server that firstlight did not start is left alone."""
        del grace_s, while_waiting
        return StopResult(0, 0, ())

    def hurry(self) -> None:
        """Nothing, as for `stop`."""

    def release(self) -> bool:
        return True


def first_process(pid: int, *, plainly: bool = False) -> int:
    """The process that a server began with: the eldest ancestor that still belongs to the same session.

    Who listens may be a worker of a front that has several; watching it alone would miss the ranks. `plainly` goes
    only from a process that cannot be a server of its own: one that was forked, is multiprocessing's, or has the
    title of an engine's rank.
    """
    stat = procfs.stat(pid)
    while stat.pid != stat.session:
        try:
            parent = procfs.stat(stat.ppid)
        except OSError:
            break
        if parent.session != stat.session or not _is_kin(parent.pid, stat.pid) or (plainly and not _is_part(stat)):
            break
        stat = parent
    return stat.pid


def _is_kin(parent: int, child: int) -> bool:
    """Whether both run the same program; a shell above a server is not part of it."""
    try:
        return procfs.exe(parent) == procfs.exe(child)
    except OSError:
        return False


def _is_part(stat: procfs.Stat) -> bool:
    """Whether a process is plainly a part of what its parent runs; one that has ended is told of by itself."""
    if stat.state in "ZX":
        return False
    try:
        words = procfs.cmdline(stat.pid)
    except OSError:
        words = ()
    title = profile(recognise(words, {}).engine).identify(words, stat.comm)
    return stat.forked or any("multiprocessing" in word for word in words) or title.role in _PARTS


def command_of(pid: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command line a process was started with and its environment, as far as they can be seen."""
    try:
        environ = procfs.environ(pid)
    except OSError:
        environ = {}
    try:
        return procfs.cmdline(pid), environ
    except OSError:
        return (), environ


def _same_file(named: Path, opened: Path) -> Path:
    """The path of an open file, if it leads to that file from here; else the descriptor itself. In a container the
    name may be another file's here, and a log that was removed has none."""
    try:
        return named if os.path.samestat(named.stat(), opened.stat()) else opened
    except OSError:
        return opened


def _logs_of(pid: int, clock: Clock) -> tuple[list[LogFollower], list[Gap]]:
    _, environ = command_of(pid)
    if run := environ.get(RUN_VARIABLE):
        try:
            folder = find_run(run).path
        except RunNotFound:
            pass
        else:
            return [LogFollower(folder / f"{stream}.log", stream, clock) for _, stream in _STREAMS], []
    followers: dict[str, LogFollower] = {}
    gaps = []
    for fd, stream in _STREAMS:
        path = Path(f"/proc/{pid}/fd/{fd}")
        try:
            target = os.readlink(path)  # noqa: PTH115
            regular = stat_module.S_ISREG(path.stat().st_mode)
        except OSError as error:
            gaps.append(procfs.gap_from(error, stream, pid))
            continue
        if regular:
            followers.setdefault(target, LogFollower(_same_file(Path(target), path), stream, clock))
        else:
            detail = f"it goes to {target}, which only its reader can read"
            gaps.append(Gap(what=stream, reason=GapReason.NOT_SUPPORTED, detail=detail, pid=pid))
    return list(followers.values()), gaps
