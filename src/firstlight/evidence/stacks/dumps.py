"""Python stacks without ptrace: the server's own interpreters are asked by a signal, and write them into a file.

Price: signals. Only for a server that firstlight launched itself, on a machine where reading other processes is
refused: `injection` puts a sitecustomize on its path that registers faulthandler on SIGUSR2, which answers even while
a thread blocks with the interpreter lock held.

A SIGUSR2 that nobody catches ends a process. So it is sent only to one that has written the file of its handler,
still has that file open under the number that the handler writes to, and catches the signal (bit 11 of SigCgt,
proc(5)). A server that puts a handler of its own in place of ours has that one called.
"""

import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core.gap import Gap
from firstlight.core.look import Frame
from firstlight.core.process import ProcessId
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.host import may_ptrace
from firstlight.evidence.stacks.python_stacks import FRAMES_MAX, WHAT, PythonThread

INJECTED = Path(__file__).parent / "injected"
VARIABLE = "FIRSTLIGHT_DUMPS"
DUMP_BYTES_MAX = 4 * 1024 * 1024
THREADS_MAX = 512
STILL_S = 0.1
"""A dump that has not grown for so long is whole: faulthandler writes it in one go."""
_POLL_S = 0.01
_REFUSES = ("none", "own descendants only")
"""How `may_ptrace` begins where py-spy, a child of firstlight's, may not read a server."""
_CAUGHT = 1 << (signal.SIGUSR2 - 1)


def injection(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables to launch a server with, so that its interpreters can be asked; makes `folder`.

    `environ` is the server's environment otherwise, whose PYTHONPATH stays in force behind ours.

    Raises:
        OSError: the folder cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{INJECTED}:{path}" if path else str(INJECTED), VARIABLE: str(folder.absolute())}


def asking_by_signal(folder: Path) -> dict[str, str]:
    """As `injection`, where this machine does not let firstlight read the stacks of a server that it starts; else, or
    where `folder` cannot be made, nothing: the server then runs exactly as it would without firstlight."""
    if not may_ptrace().startswith(_REFUSES):
        return {}
    with suppress(OSError):
        return injection(folder)
    return {}


def dumped(identity: ProcessId, folder: Path, clock: Clock, deadline: Deadline) -> tuple[PythonThread, ...] | Gap:
    """Ask a process for its Python threads; the main one is known by its id, others have `tid` 0.

    Who holds the interpreter lock is not told. Ends by the deadline; never raises.
    """
    try:
        return _dumped(identity, folder, clock, deadline)
    except OSError as error:
        return procfs.gap_from(error, WHAT, identity.pid)


def _dumped(identity: ProcessId, folder: Path, clock: Clock, deadline: Deadline) -> tuple[PythonThread, ...] | Gap:
    pid = identity.pid
    path = folder / f"{pid}-{identity.started}"
    handler = _handler(path)
    if handler is None:
        return _gap(
            pid, GapReason.NOT_SUPPORTED, "it has no handler of ours: no Python, one run with -E or -I, or too young"
        )
    if refused := _why_not(identity, path, handler):
        return _gap(pid, GapReason.NOT_SUPPORTED, f"it was not asked for its stacks: {refused}")
    before = path.stat().st_size
    _ask(identity)
    while not deadline.passed:
        grown = path.stat().st_size
        if grown > before and _is_still(path, grown, clock):
            return parse(_tail(path, before), pid, handler.main)
        clock.sleep(_POLL_S)
    detail = f"it did not answer SIGUSR2 within {deadline.seconds:g} s; it may be stuck in the kernel (state D)"
    return _gap(pid, GapReason.TIMED_OUT, detail)


class _Handler(NamedTuple):
    fd: int
    main: int


def _handler(path: Path) -> _Handler | None:
    try:
        with path.open("rb") as file:
            said = re.match(rb"firstlight fd=(\d{1,9}) main=0x([0-9a-f]{1,16})\n", file.read(64))
    except FileNotFoundError:
        return None
    return _Handler(int(said[1]), int(said[2], 16)) if said else None


def _why_not(identity: ProcessId, path: Path, handler: _Handler) -> str:
    """Why the signal would do harm, or no good; empty if it may be sent."""
    stat = procfs.stat_of(identity)
    if stat.state in "TtZX":
        return f"its state is {stat.state}"
    if not int(procfs.status(identity.pid).get("SigCgt", "0"), 16) & _CAUGHT:
        return "it no longer catches SIGUSR2, which would end it"
    with suppress(OSError):
        if os.path.samestat(os.stat(f"/proc/{identity.pid}/fd/{handler.fd}"), path.stat()):  # noqa: PTH116
            return ""
    return "the file for its answer is no longer open in it"


def _ask(identity: ProcessId) -> None:
    """Signal exactly this process, through a descriptor that no reuse of its pid can bend."""
    pidfd = os.pidfd_open(identity.pid)
    try:
        procfs.stat_of(identity)
        signal.pidfd_send_signal(pidfd, signal.SIGUSR2)
    finally:
        os.close(pidfd)


def _is_still(path: Path, size: int, clock: Clock) -> bool:
    clock.sleep(STILL_S)
    return path.stat().st_size == size


def _tail(path: Path, begin: int) -> str:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(DUMP_BYTES_MAX).decode(errors="replace")


_THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]{1,16}) (?:\[(.{0,200})\] )?\(most recent call first\):")
_FRAME = re.compile(r'  File (?:"(.*)"|\?\?\?), line (\d{1,9}|\?\?\?) in (.*)')


def parse(text: str, pid: int, main: int) -> tuple[PythonThread, ...] | Gap:
    """What faulthandler wrote (Python 3.6 to 3.14), or the gap if it makes no sense.

    `main` is the main thread, as `threading.get_ident` numbers it.
    """
    stacks: dict[int, list[Frame]] = {}
    names: dict[int, str] = {}
    frames: list[Frame] = []
    for row in text.splitlines():
        if (head := _THREAD.fullmatch(row)) and len(stacks) < THREADS_MAX:
            ident = int(head[1], 16)
            frames = stacks[ident] = []
            names[ident] = "MainThread" if ident == main else (head[2] or "")
        elif (frame := _FRAME.fullmatch(row)) and len(frames) < FRAMES_MAX:
            frames.append(
                Frame(function=frame[3], file=frame[1] or "", line=int(frame[2]) if frame[2].isdigit() else 0)
            )
    if not stacks:
        return _gap(pid, GapReason.FAILED, "its answer to SIGUSR2 makes no sense")
    return tuple(
        PythonThread(
            tid=pid if ident == main else 0, name=names[ident], active=False, owns_gil=False, stack=tuple(stack)
        )
        for ident, stack in stacks.items()
    )


def _gap(pid: int, reason: GapReason, detail: str) -> Gap:
    return Gap(what=WHAT, reason=reason, detail=detail, pid=pid)
