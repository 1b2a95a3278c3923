"""Moves what a server says from its pipe to a file, without ever making the server wait.

Part of the guard, so it imports nothing but the standard library. The move is a splice wherever the file system
allows it: the bytes are in the pipe or in the file and nowhere between, so that not even SIGKILL loses one. The
file is not opened for appending (splice refuses that); all who write to it share one file offset instead.

A file that refuses bytes (full, read-only, failing) costs the server nothing: the bytes go to a small file in
memory instead, what exceeds that is let go, both are counted, and every later chunk is tried on the file again.
"""

import errno
import fcntl
import os
from typing import NamedTuple

CHUNK_BYTES = 1 << 20
CHUNKS_AT_ONCE = 16
"""How many chunks one call moves before it lets the other stream have its turn."""
SPARE_BYTES = 16 << 20
"""How much is kept in memory while the file refuses."""


class Channel(NamedTuple):
    """The descriptors of one stream: the pipe's read end, the log file, and the file in memory (-1 for none)."""

    pipe: int
    log: int
    spare: int


class Pump:
    """One stream on its way. `missed` counts the bytes that the log file lacks, `refusal` is its last errno."""

    def __init__(self, stream: str, channel: Channel) -> None:
        self.stream = stream
        self.source = channel.pipe
        self.ended = False
        self.missed = 0
        self.refusal = 0
        self._log = channel.log
        self._spare = channel.spare
        self._splices = hasattr(os, "splice")
        os.set_blocking(self.source, False)

    def move(self) -> int:
        """Move what is there, up to a bound; how many bytes. Never blocks on the pipe; `ended` is set at its end."""
        moved = 0
        for _ in range(CHUNKS_AT_ONCE):
            chunk = 0 if self.ended else self._move_chunk()
            moved += chunk
            if not chunk:
                break
        return moved

    def _move_chunk(self) -> int:
        try:
            moved = self._splice() if self._splices else self._copy()
        except BlockingIOError:
            return 0
        self.ended = moved == 0
        return moved

    def _splice(self) -> int:
        try:
            return os.splice(self.source, self._log, CHUNK_BYTES, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno == errno.EINVAL:  # this file system, or this kind of file, cannot splice
                self._splices = False
                return self._copy()
            data = os.read(self.source, CHUNK_BYTES)
            self._refused(data, error)
            return len(data)

    def _copy(self) -> int:
        data = os.read(self.source, CHUNK_BYTES)
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._log, rest) :]
            except OSError as error:
                self._refused(rest, error)
                break
        return len(data)

    def _refused(self, data: bytes | memoryview, error: OSError) -> None:
        self.missed += len(data)
        self.refusal = error.errno or errno.EIO
        try:
            room = max(0, SPARE_BYTES - os.lseek(self._spare, 0, os.SEEK_CUR))
            os.write(self._spare, data[:room])
        except OSError:
            return  # no memory either: counted as missed, and gone


def widen(pipe: int) -> None:
    """Give a pipe room for a whole chunk, so that a short pause of the reader is not felt by the writer.

    Refused beyond /proc/sys/fs/pipe-max-size, or to a user who already has much in pipes; the usual 64 KiB do.
    """
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, CHUNK_BYTES)
    except OSError:
        return
