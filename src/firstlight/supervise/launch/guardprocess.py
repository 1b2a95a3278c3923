"""What a guard does to its own process when it begins: who inherits its orphans, its title, its signals.

Part of the guard: standard library only.
"""

import ctypes
import os
import signal

PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """Have orphans below this process become its children. False where the kernel refuses."""
    return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def set_title(title: str) -> None:
    """Show `title` in ps and top, by overwriting the argument area (proc(5): arg_start and arg_end)."""
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - pathlib would double the guard's memory
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    if 0 < start < end:
        room = end - start
        ctypes.memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"firstlightguard", 0, 0, 0)


def signals_to_pipe() -> int:
    """Have SIGCHLD and SIGTERM written to a pipe; its read end. SIGINT and SIGHUP do not concern the guard."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return readable
