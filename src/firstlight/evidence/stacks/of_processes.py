"""Python stacks of many processes, a few at a time, joined with what /proc says of their threads.

Partial results are kept: when the time is up, every process that was not reached is a gap.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from firstlight import procfs
from firstlight.clock import Clock, Deadline
from firstlight.core.gap import Gap
from firstlight.core.look import ProcessLook, ThreadLook
from firstlight.core.process import ProcessId
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.stacks import python_stacks
from firstlight.evidence.stacks.dumps import dumped
from firstlight.evidence.stacks.python_stacks import WHAT, PythonThread
from firstlight.evidence.stacks.source import SourceLines
from firstlight.evidence.workers import in_turn

AT_ONCE = 3

Stacks: TypeAlias = tuple[PythonThread, ...] | Gap
"""The Python threads of a process, none if no Python lives in it."""

_NOT_ASKED = Gap(what=WHAT, reason=GapReason.NOT_SUPPORTED, detail="this look was asked to leave the stacks out")


def stacks_of(
    ids: Sequence[ProcessId], clock: Clock, deadline: Deadline, dumps: Path | None = None
) -> dict[int, Stacks]:
    """Every process's Python threads by pid. Ends by the deadline; never raises.

    `dumps` is the folder of a server that was launched with `dumps.injection`: its processes are asked by a signal
    where py-spy may not read them.
    """
    asking = _Asking(python_stacks.find_py_spy(), dumps, clock, deadline)
    return in_turn(WHAT, ids, asking.about, AT_ONCE, deadline)


class _Asking(NamedTuple):
    """How processes are asked for their Python stacks."""

    py_spy: Path | None
    dumps: Path | None
    clock: Clock
    deadline: Deadline

    def about(self, one: ProcessId) -> Stacks:
        """The stacks of one process, with the text of the innermost lines."""
        try:
            if procfs.stat(one.pid).state in "ZX" or not python_stacks.is_python(one.pid):
                return ()
            answer = self._answer(one)
            if isinstance(answer, Gap):
                return answer
            lines = SourceLines(one.pid, procfs.boot_wall_time() + one.started / procfs.TICKS_PER_S)
            return tuple(_with_source(thread, lines) for thread in answer)
        except OSError as error:
            return procfs.gap_from(error, WHAT, one.pid)

    def _answer(self, one: ProcessId) -> Stacks:
        seconds = min(python_stacks.ONE_DEADLINE_S, self.deadline.left)
        answer = python_stacks.dump(one, self.py_spy, self.clock, seconds) if self.py_spy else _missing(one.pid)
        if self.dumps is None or not isinstance(answer, Gap) or answer.reason not in _BY_SIGNAL:
            return answer
        by_signal = dumped(one, self.dumps, self.clock, Deadline(self.clock, seconds, "stacks by signal"))
        return answer if isinstance(by_signal, Gap) else by_signal


_BY_SIGNAL = frozenset({GapReason.NO_PERMISSION, GapReason.NOT_INSTALLED})


def _with_source(thread: PythonThread, lines: SourceLines) -> PythonThread:
    return thread if isinstance(thread.stack, Gap) else thread._replace(stack=lines.annotate(thread.stack))


def _missing(pid: int) -> Gap:
    detail = "py-spy was not found beside this Python or on the PATH: pip install py-spy"
    return Gap(what=WHAT, reason=GapReason.NOT_INSTALLED, detail=detail, pid=pid)


def with_stacks(one: ProcessLook, stacks: Stacks | None) -> tuple[ThreadLook, ...]:
    """The threads of a process with their Python stacks; None where they were not asked for."""
    if stacks is None or isinstance(stacks, Gap):
        gap = stacks or _NOT_ASKED
        return tuple(msgspec.structs.replace(thread, stack=gap) for thread in one.threads)
    by_tid = {_tid(thread, one): thread for thread in stacks}
    return tuple(_joined(thread, by_tid.get(thread.tid)) for thread in one.threads)


def _tid(thread: PythonThread, one: ProcessLook) -> int:
    """The thread's id outside; in a container of its own the main thread has another one, or py-spy knows none."""
    known = {looked.tid for looked in one.threads}
    return thread.tid if thread.tid in known or thread.name != "MainThread" else one.process.id.pid


def _joined(thread: ThreadLook, python: PythonThread | None) -> ThreadLook:
    if python is None:
        return thread
    return msgspec.structs.replace(
        thread,
        name=python.name or thread.name,
        stack=python.stack,
        owns_gil=python.owns_gil,
        active=python.active,
    )
