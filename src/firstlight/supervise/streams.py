"""What a server's output flows through: a wide pipe, a log file, and a file in memory for when that one refuses."""

import os
from pathlib import Path
from typing import NamedTuple

from firstlight.clock import Clock
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.supervise.capture import LogFollower
from firstlight.supervise.pump import Channel, widen


class Stream(NamedTuple):
    """One of stdout and stderr. The server writes to `write_end`, which only the guard and the server keep."""

    name: str
    channel: Channel
    write_end: int
    path: Path

    @property
    def fds(self) -> list[int]:
        """What the guard inherits."""
        return [fd for fd in (*self.channel, self.write_end) if fd >= 0]

    def followers(self, clock: Clock) -> list[LogFollower]:
        """Who reads the log, and what the file missed of it."""
        spare = Path(f"/proc/self/fd/{self.channel.spare}")
        sources = [(self.channel.log, self.path), (self.channel.spare, spare)]
        return [LogFollower(path, self.name, clock) for fd, path in sources if fd >= 0]

    def close(self) -> None:
        """Close what this process holds of it, the write end excepted."""
        for fd in self.channel:
            if fd >= 0:
                os.close(fd)


def open_stream(name: str, folder: Path, gaps: list[Gap]) -> Stream:
    """Open all of it. A log file that cannot be opened is a gap."""
    _occupy_stdio()
    path = folder / f"{name}.log"
    read_end, write_end = os.pipe()
    widen(write_end)
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as error:
        log = -1
        gaps.append(log_gap(name, error.errno or 0))
    return Stream(name, Channel(read_end, log, _spare(name)), write_end, path)


def log_gap(name: str, number: int) -> Gap:
    """The log file lacks something, for the reason that errno says."""
    return Gap(
        what=f"the whole of {name}.log",
        reason=GapReason.FAILED,
        detail=f"the file could not be written: {os.strerror(number)}; the first 16 MiB that it missed are kept in "
        "memory and followed there, but not after the end of firstlight",
    )


def _spare(name: str) -> int:
    try:
        return os.memfd_create(f"firstlight {name}", os.MFD_CLOEXEC)
    except OSError:
        return -1


def _occupy_stdio() -> None:
    """Started without stdin, stdout or stderr: fill the holes, so that no pipe takes the place of one of them."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
