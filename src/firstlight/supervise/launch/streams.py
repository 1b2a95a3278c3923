"""What a server's output flows through: a wide pipe, a log file, and a file in memory for when that one refuses."""

import os
from pathlib import Path
from typing import NamedTuple

from firstlight.clock import Clock
from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason
from firstlight.supervise.launch.pump import Channel, Pump, widen
from firstlight.supervise.log.capture import LogFollower

STREAMS = ("stdout", "stderr")


class Stream(NamedTuple):
    """One of stdout and stderr. The server writes to `write_end`, which only the guard and the server keep."""

    name: str
    channel: Channel
    write_end: int
    path: Path

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


class Output:
    """Both streams, and the file that exits are noted in. What a guard inherits is told to it in `message`."""

    def __init__(self, folder: Path) -> None:
        self.gaps: list[Gap] = []
        _occupy_stdio()
        self.exits = _open_exits(folder)
        self._streams = [open_stream(name, folder, self.gaps) for name in STREAMS]
        self._writable = True

    @property
    def paths(self) -> tuple[Path, Path]:
        stdout, stderr = (stream.path for stream in self._streams)
        return stdout, stderr

    @property
    def fds(self) -> list[int]:
        """What a guard inherits."""
        writable = [stream.write_end for stream in self._streams if self._writable]
        return [fd for fd in (self.exits, *writable, *(fd for s in self._streams for fd in s.channel)) if fd >= 0]

    @property
    def message(self) -> dict[str, object]:
        """The numbers of all these for the guard."""
        streams = {s.name: {"channel": s.channel, "write_end": s.write_end} for s in self._streams}
        return {"exits": self.exits, **streams}

    def followers(self, clock: Clock) -> list[LogFollower]:
        return [follower for stream in self._streams for follower in stream.followers(clock)]

    def pumps(self) -> list[Pump]:
        """What does the guard's work where there is no guard."""
        return [Pump(stream.name, stream.channel) for stream in self._streams]

    def leave_writing_to_others(self) -> None:
        """Close the write ends here, or the pipes would never end."""
        self._writable = False
        for stream in self._streams:
            os.close(stream.write_end)

    def close(self) -> None:
        """Close what this process holds of it, the write ends excepted."""
        os.close(self.exits)
        for stream in self._streams:
            stream.close()


def _open_exits(folder: Path) -> int:
    try:
        return os.open(folder / "exits.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def open_stream(name: str, folder: Path, gaps: list[Gap]) -> Stream:
    """Open all of it. A log file that cannot be opened is a gap."""
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
