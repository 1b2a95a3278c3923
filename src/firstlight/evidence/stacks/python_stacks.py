"""Python stacks by py-spy (0.4), one `dump --json` of its own for each process, with a deadline of its own.

Price: reads, and for some processes that compute: pauses. A process that waits is read without being stopped
(`--nonblocking`): its stacks do not change meanwhile, and a stop is not harmless, since it cuts blocking calls short
(signal(7): epoll_wait returns EINTR, a half-done write a short count), which can wake the very stall that is looked
at. One that computes is read twice in that way, and a thread is believed if both readings lead to the same outermost
frame; a reading that was torn, because the thread went on, mostly does not. The inner frames are those of some moment
within the reading. Only if that fails, and the process has few enough threads for it to take less than some 20 ms, is
it stopped.

A py-spy that is late is killed; killing it while it is attached can leave the target stopped, and then, and only
then, the target is sent SIGCONT to undo what we did.
"""

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core.gap import Gap
from firstlight.core.look import Frame
from firstlight.core.process import ProcessId
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.children import Late, output_of

WHAT = "Python stacks"
ONE_DEADLINE_S = 3.0
PAUSE_DEADLINE_S = 0.5
"""py-spy is killed then, so that no stop lasts longer, however little of the CPU py-spy gets."""
PAUSE_THREADS_MAX = 100
"""py-spy stops a process for 0.2 ms a thread: 12 ms with 60 threads, 46 ms with 200, 112 ms with 400."""
ONE_TRY_SHARE = 0.6
READINGS_MORE = 2
"""Readings that may fail: of a thread that calls and returns all the time some five in a hundred do."""
OUTPUT_BYTES_MAX = 64 * 1024 * 1024
FRAMES_MAX = 256

_STOP_SIGNALS = 1 << (signal.SIGSTOP - 1)


class PythonThread(NamedTuple):
    """One thread as py-spy sees it; `tid` is 0 where it cannot tell."""

    tid: int
    name: str
    active: bool
    owns_gil: bool
    stack: tuple[Frame, ...] | Gap


class _SpyFrame(msgspec.Struct):
    name: str
    filename: str
    line: int


class _SpyThread(msgspec.Struct):
    frames: list[_SpyFrame]
    os_thread_id: int | None = None
    thread_name: str | None = None
    active: bool = False
    owns_gil: bool = False


_decoder = msgspec.json.Decoder(list[_SpyThread])


def find_py_spy() -> Path | None:
    """The program, beside this interpreter or on the PATH."""
    beside = Path(sys.executable).parent / "py-spy"
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("py-spy")
    return Path(found) if found else None


def is_python(pid: int) -> bool:
    """Whether a Python interpreter lives in the process, by its program or the libraries it maps. May block."""
    if re.match(r"python[\d.]*t?$", Path(procfs.exe(pid).removesuffix(" (deleted)")).name):
        return True
    return procfs.maps(pid, "libpython")


def dump(
    identity: ProcessId, py_spy: Path, clock: Clock, deadline_s: float = ONE_DEADLINE_S
) -> tuple[PythonThread, ...] | Gap:
    """The Python threads of one process, or why they were not seen. Returns within about `deadline_s` seconds."""
    whole = Deadline(clock, deadline_s, f"{WHAT} of process {identity.pid}")
    try:
        program = _program(identity)
        answer = _dump(identity, py_spy, clock, whole)
        if _program(identity) == program:
            return answer
    except OSError as error:
        return procfs.gap_from(error, WHAT, identity.pid)
    detail = "it became another program while it was looked at (exec); look again"
    return Gap(what=WHAT, reason=GapReason.VANISHED, detail=detail, pid=identity.pid)


def _program(identity: ProcessId) -> str:
    """Raises ProcessLookupError: the pid belongs to another process now."""
    procfs.stat_of(identity)
    return procfs.exe(identity.pid)


_Answer = tuple[PythonThread, ...] | Gap


def _dump(identity: ProcessId, py_spy: Path, clock: Clock, whole: Deadline) -> _Answer:
    wanted = 2 if runs(identity.pid) else 1
    readings: list[tuple[PythonThread, ...]] = []
    answer: _Answer = _UNREAD
    for _ in range(wanted + READINGS_MORE):
        within = Deadline(clock, whole.left * ONE_TRY_SHARE, whole.name)
        answer = _once(identity, py_spy, within, pausing=False)
        if isinstance(answer, Gap) and answer.reason is not GapReason.FAILED:
            break
        if not isinstance(answer, Gap):
            readings.append(answer)
        if len(readings) == wanted:
            answer = believed(*readings)
            break
    return _instead(answer, identity, py_spy, clock, whole)


def _instead(answer: _Answer, identity: ProcessId, py_spy: Path, clock: Clock, deadline: Deadline) -> _Answer:
    """The answer, if it is whole or no stop can better it; else what a stop tells.

    Where there was no time to read without a stop, a stop would take long, too.
    """
    parts = (answer,) if isinstance(answer, Gap) else (thread.stack for thread in answer)
    failed = any(isinstance(part, Gap) and part.reason is GapReason.FAILED for part in parts)
    if not failed or not _may_be_paused(identity.pid):
        return answer
    within = Deadline(clock, min(PAUSE_DEADLINE_S, deadline.left), deadline.name)
    paused = _once(identity, py_spy, within, pausing=True)
    return answer if isinstance(paused, Gap) else paused


def _may_be_paused(pid: int) -> bool:
    """Not what is stopped already, nor what has so many threads that to stop them all takes long."""
    return procfs.stat(pid).state not in "Tt" and len(procfs.tids(pid)) <= PAUSE_THREADS_MAX


def believed(
    first: tuple[PythonThread, ...], last: tuple[PythonThread, ...] | None = None
) -> tuple[PythonThread, ...]:
    """The last of two readings, without the stacks of threads that both do not trace back to the same frame. Pure."""
    if last is None:
        return first
    roots = {(thread.tid, thread.name): _root(thread) for thread in first}
    return tuple(
        thread if roots.get((thread.tid, thread.name)) == _root(thread) else thread._replace(stack=_TORN)
        for thread in last
    )


def _root(thread: PythonThread) -> tuple[str, str] | None:
    if isinstance(thread.stack, Gap) or not thread.stack:
        return None
    return thread.stack[-1].function, thread.stack[-1].file


_UNREAD = Gap(what=WHAT, reason=GapReason.FAILED, detail="it was not read")
_TORN = Gap(
    what=WHAT,
    reason=GapReason.FAILED,
    detail="the thread went on while its frames were read; to stop all threads of this process would take too long",
)


def runs(pid: int) -> bool:
    """Whether any thread of the process is on a CPU, or wants to be; not if somebody is just stopping it."""
    if procfs.stat(pid).state in "Tt":
        return False
    for tid in procfs.tids(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            if procfs.stat(pid, tid).state == "R":
                return True
    return False


def _once(identity: ProcessId, py_spy: Path, deadline: Deadline, *, pausing: bool) -> _Answer:
    pid = identity.pid
    argv = [str(py_spy), "dump", "--json", "--pid", str(pid), *([] if pausing else ["--nonblocking"])]
    try:
        done = output_of(argv, deadline, OUTPUT_BYTES_MAX)
    except Late as late:
        if pausing:
            let_go_on(identity)
        return Gap(what=WHAT, reason=GapReason.TIMED_OUT, detail=f"py-spy gave no answer: {late}", pid=pid)
    except OSError as error:
        return Gap(what=WHAT, reason=GapReason.FAILED, detail=f"py-spy could not be run: {error}", pid=pid)
    if done.code != 0:
        if pausing and done.code < 0:  # it was killed, or crashed, perhaps while the target was stopped
            let_go_on(identity)
        return refusal(done.errors, pid)
    return parse(done.output, pid)


def parse(output: bytes, pid: int) -> tuple[PythonThread, ...] | Gap:
    """What `py-spy dump --json` printed, or the gap if it makes no sense."""
    try:
        threads = _decoder.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Gap(what=WHAT, reason=GapReason.FAILED, detail=f"py-spy's answer makes no sense: {error}", pid=pid)
    return tuple(
        PythonThread(
            tid=thread.os_thread_id or 0,
            name=thread.thread_name or "",
            active=thread.active,
            owns_gil=thread.owns_gil,
            stack=tuple(Frame(function=f.name, file=f.filename, line=f.line) for f in thread.frames[:FRAMES_MAX]),
        )
        for thread in threads
    )


_REFUSALS: Iterable[tuple[str, GapReason, str]] = (
    (
        r"permission denied|operation not permitted|EPERM|os error 1\b|os error 13\b",
        GapReason.NO_PERMISSION,
        (
            "reading another process needs the right to ptrace it: run as root or the same user with "
            "kernel.yama.ptrace_scope=0, or give the container the SYS_PTRACE capability"
        ),
    ),
    (r"no such (file|process)|os error [23]\b", GapReason.VANISHED, "the process ended while it was looked at"),
    (
        r"python version|interpreter|python process|libpython",
        GapReason.NOT_SUPPORTED,
        "no Python interpreter that py-spy understands was found in the process; it may be too early in its start",
    ),
)


def refusal(errors: bytes, pid: int) -> Gap:
    """The gap that py-spy's complaint stands for."""
    text = errors.decode(errors="replace")
    said = text.partition("Stack backtrace")[0]
    for pattern, reason, detail in _REFUSALS:
        if re.search(pattern, said, re.IGNORECASE):
            return Gap(what=WHAT, reason=reason, detail=detail, pid=pid)
    first = " ".join(said.split())[:300]
    return Gap(what=WHAT, reason=GapReason.FAILED, detail=f"py-spy failed: {first or 'without a word'}", pid=pid)


def let_go_on(identity: ProcessId) -> bool:
    """Undo a stop that a killed py-spy left on a process that was not stopped before; True if there was one."""
    with suppress(OSError):
        if procfs.stat(identity.pid).id == identity and _is_left_stopped(identity.pid):
            os.kill(identity.pid, signal.SIGCONT)
            return True
    return False


def _is_left_stopped(pid: int) -> bool:
    if procfs.stat(pid).state in "Tt":
        return True
    return any(_stop_is_pending(pid, tid) for tid in procfs.tids(pid))


def _stop_is_pending(pid: int, tid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return bool(int(procfs.status(pid, tid).get("SigPnd", "0"), 16) & _STOP_SIGNALS)
    return False
