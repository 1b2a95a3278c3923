"""What the testing programs share: their options, what they say, and child processes with a name."""

import argparse
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

LIFE_S = 900
"""No program outlives this, even if whoever started it is killed and nobody ends it."""

_PR_SET_NAME = 15
_CLONE_NEWNS = 0x20000
_MS_REC_PRIVATE = 0x44000


def options(about: str | None) -> argparse.ArgumentParser:
    """The options that every program takes; starts the clock of `LIFE_S`."""
    signal.alarm(LIFE_S)
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="where it serves, or would serve; 0: a free one")
    return parser


def say(text: str) -> None:
    """One log line on stdout, written whole, so that lines of several processes do not mix."""
    os.write(1, f"INFO: {text}\n".encode())


def start(name: str, work: Callable[..., object], *arguments: object) -> BaseProcess:
    """A forked child that calls itself `name` and does `work(*arguments)`."""
    child = multiprocessing.get_context("fork").Process(target=_live, args=(name, work, arguments), name=name)
    child.start()
    return child


def _live(name: str, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    signal.alarm(LIFE_S)
    call_myself(name)
    work(*arguments)


def call_myself(name: str) -> None:
    """Change what `ps` shows for this process: its command line and its 15-byte `comm`.

    The command line is overwritten in place, between `arg_start` and `arg_end` of /proc/self/stat (fields 48 and
    49 of proc(5)), and cut where there is no room.
    """
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    ctypes.memset(begin, 0, end - begin)
    title = name.encode()[: end - begin - 1]
    ctypes.memmove(begin, title, len(title))


def mount_namespace() -> None:
    """Give this process mounts of its own, as a container has them; they go with the last process in it."""
    libc = ctypes.CDLL(None, use_errno=True)
    private = ctypes.c_ulong(_MS_REC_PRIVATE)
    if libc.unshare(_CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, private, None) != 0:
        sys.exit(f"cannot have mounts of its own: {os.strerror(ctypes.get_errno())}")


def wait_for_ever() -> None:
    """Block this thread on an event that nobody sets."""
    threading.Event().wait()
