"""What a server that was killed leaves in /dev/shm, where it would fill the memory of the next: removed at the end.

A segment is the server's own if it is new since the launch, belongs to our user, and was seen mapped or open in one
of the server's processes while they lived. One that was never caught in the act is only removed if its name is of
a known kind and nobody else makes segments at the time. What a living process maps or holds open is never removed.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from firstlight import procfs
from firstlight.clock import Clock
from firstlight.core.process import Process, ProcessId
from firstlight.supervise.processes.slow_reads import Reader

SHM = Path("/dev/shm")
KNOWN_KINDS = (
    "psm_",  # multiprocessing.shared_memory
    "sem.mp-",  # multiprocessing semaphores
    "sem.loky-",
    "nccl-",
    "torch_",
    "cuda.shm.",
    "__KMP_REGISTERED_LIB_",  # the OpenMP runtime
    "vllm",
    "sglang",
)
FIRST_LOOK_S = 1.0
LATER_LOOKS_S = 60.0
"""Memory maps are read a second after a segment appeared, then ever more seldom until it changes again."""
LAST_LOOK_S = 3.0
"""How long the last look at everybody's maps may take; what was not seen by then counts as in use."""


class Segment(NamedTuple):
    """A file in /dev/shm; the inode tells it from a later one of the same name."""

    name: str
    inode: int


class Swept(NamedTuple):
    """What became of the segments that are new in /dev/shm since the launch; others' that are in use are not named.

    `removed` is gone. `left` was seen in use by the server itself, and is still used by another or would not go.
    `unsure` is used by nobody and was never seen in use: the server's if it closed them at once, or anybody's.
    """

    removed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()


class ShmWatch:
    """Made before the launch; told of the server's processes while they live; asked to sweep when they are gone."""

    def __init__(self, clock: Clock, folder: Path = SHM) -> None:
        self._clock = clock
        self._folder = folder
        self._before = self._segments()
        self.owned: set[Segment] = set()
        self._unclaimed: set[Segment] = set()
        self._next_look = 0.0
        self._pause_s = FIRST_LOOK_S
        self._reader: Reader[ProcessId, frozenset[str]] = Reader(self._used_by, clock, "shared memory of processes")

    def note(self, processes: Iterable[Process]) -> None:
        """See which new segments these processes use. Cheap: maps are only read while there is one to claim."""
        unclaimed = self._segments() - self._before - self.owned
        for names in self._reader.answers().values():
            self.owned |= {segment for segment in unclaimed if segment.name in names}
        unclaimed -= self.owned
        now = self._clock.monotonic()
        if unclaimed - self._unclaimed:
            self._pause_s, self._next_look = FIRST_LOOK_S, now
        self._unclaimed = unclaimed
        if unclaimed and now >= self._next_look:
            self._next_look = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, LATER_LOOKS_S)
            for process in processes:
                self._reader.ask(process.id)

    def remove(self) -> Swept:
        """Sweep up after the server's processes are gone."""
        for names in self._reader.answers(LAST_LOOK_S / 3).values():
            self.owned |= {segment for segment in self._unclaimed if segment.name in names}
        new = self._segments() - self._before
        if not new:
            return Swept()
        owned = new & self.owned
        in_use = self._used_by_anybody()
        if in_use is None:
            return Swept(left=_names(owned), unsure=_names(new - owned))
        others_make_some = any(segment.name in in_use for segment in new)
        idle = {segment for segment in new if segment.name not in in_use}
        known_kinds = {segment for segment in idle - owned if segment.name.startswith(KNOWN_KINDS)}
        removable = idle & owned if others_make_some else (idle & owned) | known_kinds
        removed = {segment for segment in removable if self._unlink(segment)}
        return Swept(_names(removed), _names(owned - removed), _names(idle - owned - removed))

    def close(self) -> None:
        """Let the reader end."""
        self._reader.close()

    def _segments(self) -> set[Segment]:
        """Our user's regular files in the folder."""
        found = set()
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                        found.add(Segment(entry.name, status.st_ino))
        except OSError:
            return found
        return found

    def _used_by(self, id_: ProcessId) -> frozenset[str]:
        """Names of segments that a process maps or holds open. Takes its mmap lock."""
        prefix = f"{self._folder}/"
        paths = set(procfs.mapped(id_.pid, prefix))
        with suppress(PermissionError):  # then the maps alone must do
            paths |= {link.target for link in procfs.fds(id_.pid) if link.target.startswith(prefix)}
        return frozenset(path.removeprefix(prefix) for path in paths)

    def _used_by_anybody(self) -> set[str] | None:
        """Names in use by any process that can be seen; None if some could not be seen in time.

        Other users' processes refuse, and are passed over: they cannot open a segment of ours (mode 0600).
        """
        reader: Reader[ProcessId, frozenset[str]] = Reader(self._used_by, self._clock, "shared memory of everybody")
        for pid in procfs.pids():
            try:
                reader.ask(procfs.stat(pid).id)
            except OSError:
                continue
        answers = reader.answers(LAST_LOOK_S)
        complete = not reader.waiting and not reader.stuck
        reader.close()
        return set().union(*answers.values()) if complete else None

    def _unlink(self, segment: Segment) -> bool:
        path = self._folder / segment.name
        try:
            if path.lstat().st_ino != segment.inode:
                return False
            path.unlink()
        except OSError:
            return False
        return True


def _names(segments: Iterable[Segment]) -> tuple[str, ...]:
    return tuple(sorted(segment.name for segment in segments))
