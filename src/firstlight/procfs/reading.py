"""How every file here is read, and the gap that an error in reading stands for."""

import os

from firstlight.core.gap import Gap
from firstlight.core.vocabulary import GapReason


def content(path: str) -> bytes:
    """All of a file, in pieces: files under /proc have no size to ask for."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = []
        while chunk := os.read(fd, 65536):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        os.close(fd)


def gap_from(error: OSError, what: str, pid: int = 0) -> Gap:
    """The gap that an error from this module stands for."""
    if isinstance(error, PermissionError):
        return Gap(
            what=what,
            reason=GapReason.NO_PERMISSION,
            detail="run firstlight as the server's user, as root, or with CAP_SYS_PTRACE",
            pid=pid,
        )
    if isinstance(error, FileNotFoundError | ProcessLookupError):
        return Gap(what=what, reason=GapReason.VANISHED, detail="the process ended while it was looked at", pid=pid)
    return Gap(what=what, reason=GapReason.FAILED, detail=str(error), pid=pid)
