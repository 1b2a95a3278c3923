"""Processes that carry a mark in their environment, which all they start inherits: so the last of them is found."""

import contextlib
import os
import signal
import time
from pathlib import Path

from firstlight import procfs

MARK = "FIRSTLIGHT_TESTING_RUN"
GRACE_S = 10.0
_POLL_S = 0.1


def marked(mark: str) -> list[int]:
    """Every process but this one that was started with the mark."""
    wanted = f"{MARK}={mark}".encode()
    return [pid for pid in procfs.pids() if pid != os.getpid() and wanted in _environ(pid)]


def kill_marked(mark: str) -> None:
    """End all of them, by force."""
    ends = time.monotonic() + GRACE_S
    while (pids := marked(mark)) and time.monotonic() < ends:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def title_of(pid: int) -> str:
    """What a process calls itself; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _environ(pid: int) -> bytes:
    """The environment it was started with; empty for a zombie, and for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
