"""Native stacks of processes: of threads that wait without stopping them, of all others only if pauses are allowed.

Price: reads, as long as `pausing` is false. A thread that waits is unwound from outside (`unwind`), on x86-64. With
`pausing` the gentlest tool that is installed is asked as well, which shows threads that run, too. It stops the
process for milliseconds to seconds, and a stop cuts blocking calls short (signal(7): epoll_wait returns EINTR), which
may wake the very stall that is looked at. Each tool is a program of its own with a deadline; one that is late is
killed, and if that leaves the target stopped it is sent SIGCONT.
"""

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core.gap import Gap
from firstlight.core.look import NativeFrame
from firstlight.core.process import ProcessId
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.children import Late, output_of
from firstlight.evidence.stacks import native_tools, python_stacks
from firstlight.evidence.stacks.native_tools import Tool
from firstlight.evidence.stacks.unwind import Binaries, waiting_stacks
from firstlight.evidence.workers import in_turn

WHAT = "native stacks"
ONE_DEADLINE_S = 5.0
OUTPUT_BYTES_MAX = 32 * 1024 * 1024
AT_ONCE = 3

Natives: TypeAlias = dict[int, tuple[NativeFrame, ...]] | Gap
"""The native frames of the threads of a process, by thread id."""


def native_stacks(
    ids: Sequence[ProcessId], clock: Clock, deadline: Deadline, *, pausing: bool = False
) -> dict[int, Natives]:
    """Every process's native stacks by pid and thread id. Ends by the deadline; never raises."""
    asking = _Asking(clock, deadline, tools=installed() if pausing else (), pausing=pausing)
    return in_turn(WHAT, ids, asking.about, AT_ONCE, deadline)


def installed() -> tuple[tuple[Tool, str], ...]:
    """The tools that are there, the gentlest first, with their paths: beside this Python, or on the PATH."""
    paths = ((tool, _path(tool.name)) for tool in native_tools.BY_PAUSE)
    return tuple((tool, path) for tool, path in paths if path)


def _path(name: str) -> str:
    beside = Path(sys.executable).parent / name
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name) or ""


class _Asking:
    """One round of questions: files that were opened for one process serve the next."""

    def __init__(self, clock: Clock, deadline: Deadline, *, tools: Sequence[tuple[Tool, str]], pausing: bool) -> None:
        self.deadline = deadline
        self._clock = clock
        self._tools = tools
        self._pausing = pausing
        self._binaries = Binaries()

    def about(self, one: ProcessId) -> Natives:
        """The native stacks of one process."""
        try:
            procfs.stat_of(one)
            read = self._read(one.pid)
            told = self._told(one) if self._pausing else None
            procfs.stat_of(one)
        except OSError as error:
            return procfs.gap_from(error, WHAT, one.pid)
        if isinstance(told, dict):
            return told if isinstance(read, Gap) else {**read, **told}
        return read or told or _gap(one.pid, GapReason.NOT_SUPPORTED, f"all its threads run; {_PAUSE}")

    def _read(self, pid: int) -> Natives:
        if platform.machine() != "x86_64":
            return _gap(pid, GapReason.NOT_SUPPORTED, f"without a pause they are read on x86-64 only; {_PAUSE}")
        return waiting_stacks(pid, self._binaries, self._clock, self.deadline)

    def _told(self, one: ProcessId) -> Natives:
        """What the first tool says that says anything."""
        if procfs.stat(one.pid).state in "Tt":
            return _gap(one.pid, GapReason.NOT_SUPPORTED, "it is stopped already; no tool may let it go on")
        python = python_stacks.is_python(one.pid)
        gap = _gap(one.pid, GapReason.NOT_INSTALLED, _INSTALL)
        for tool, path in self._tools:
            if self.deadline.passed or (tool.python_only and not python):
                continue
            told = ask(tool, path, one, Deadline(self._clock, min(ONE_DEADLINE_S, self.deadline.left), tool.name))
            if not isinstance(told, Gap) or told.reason in {GapReason.NO_PERMISSION, GapReason.VANISHED}:
                return told
            gap = told
        return gap


_PAUSE = "`firstlight look --native` asks a tool, which pauses the process"
_INSTALL = "no tool was found that shows them: " + ", or ".join(native_tools.INSTALL.values())


def ask(tool: Tool, path: str, one: ProcessId, deadline: Deadline) -> Natives:
    """Let one tool look at one process; it stops it meanwhile."""
    try:
        done = output_of([*_NO_DOWNLOADS, path, *tool.arguments(one.pid)], deadline, OUTPUT_BYTES_MAX)
    except Late as late:
        python_stacks.let_go_on(one)
        return _gap(one.pid, GapReason.TIMED_OUT, f"{tool.name} gave no answer: {late}")
    except OSError as error:
        return _gap(one.pid, GapReason.FAILED, f"{tool.name} could not be run: {error}")
    try:
        stacks = tool.read(done.output.decode(errors="replace"))
    except (ValueError, RecursionError) as error:
        return _gap(one.pid, GapReason.FAILED, f"the answer of {tool.name} makes no sense: {error}")
    return stacks or _refused(tool, done.errors, one.pid)


_NO_DOWNLOADS = ("env", "-u", "DEBUGINFOD_URLS")
"""Where this is set, elfutils and gdb fetch debug files from the network, with the target stopped."""


def _refused(tool: Tool, errors: bytes, pid: int) -> Gap:
    gap = python_stacks.refusal(errors, pid)
    if gap.reason is GapReason.NO_PERMISSION:
        return _gap(pid, gap.reason, gap.detail)
    said = " ".join(errors.decode(errors="replace").split())[:300]
    return _gap(pid, GapReason.FAILED, f"{tool.name} showed no frames: {said or 'without a word'}")


def _gap(pid: int, reason: GapReason, detail: str) -> Gap:
    return Gap(what=WHAT, reason=reason, detail=detail, pid=pid)
