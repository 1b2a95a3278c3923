"""Run a probe where it can be abandoned: looking at a stuck process may itself block, in the kernel, for ever.

A probe runs in a daemon thread and is waited for, never joined. One that is late becomes a gap; its thread ends when
the kernel lets it, or with firstlight.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from firstlight.clock import Deadline
from firstlight.core.gap import Gap
from firstlight.core.process import ProcessId
from firstlight.core.vocabulary import GapReason
from firstlight.procfs import gap_from

_T = TypeVar("_T")


class Probe(Generic[_T]):
    """A running probe of `what`, of process `pid` or of the whole machine (0)."""

    def __init__(self, what: str, work: Callable[[], _T], pid: int = 0) -> None:
        self._what = what
        self._pid = pid
        self._answer: queue.SimpleQueue[_T | Gap] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(work,), name=f"probe {what} {pid}", daemon=True).start()

    def _run(self, work: Callable[[], _T]) -> None:
        self._answer.put(self._attempt(work))

    def _attempt(self, work: Callable[[], _T]) -> _T | Gap:
        try:
            return work()
        except OSError as error:
            return gap_from(error, self._what, self._pid)
        except Exception as error:  # noqa: BLE001 - a probe that breaks is a gap; the look goes on
            return Gap(what=self._what, reason=GapReason.FAILED, detail=repr(error), pid=self._pid)

    def result(self, deadline: Deadline) -> _T | Gap:
        """The answer, or the gap that stands for it once the deadline has passed."""
        try:
            return self._answer.get(timeout=deadline.left)
        except queue.Empty:
            detail = f"no answer within {deadline.seconds:g} s; the kernel may be holding the process's memory map"
            return Gap(what=self._what, reason=GapReason.TIMED_OUT, detail=detail, pid=self._pid)


def in_turn(
    what: str, ids: Sequence[ProcessId], ask: Callable[[ProcessId], _T], at_once: int, deadline: Deadline
) -> dict[int, _T | Gap]:
    """What `ask` says of each process, by pid, so many at once; a gap for those whose turn did not come.

    For what costs CPU: all at once would make each late. Ends by the deadline.
    """
    todo: queue.SimpleQueue[ProcessId] = queue.SimpleQueue()
    for one in ids:
        todo.put(one)
    found: dict[int, _T | Gap] = {}
    workers = [Probe(what, partial(_work, todo, ask, found, deadline)) for _ in range(min(at_once, len(ids)))]
    for worker in workers:
        worker.result(deadline)
    return {one.pid: found[one.pid] if one.pid in found else _no_turn(what, one.pid, deadline) for one in ids}


def _work(
    todo: "queue.SimpleQueue[ProcessId]",
    ask: Callable[[ProcessId], _T],
    found: dict[int, _T | Gap],
    deadline: Deadline,
) -> None:
    with suppress(queue.Empty):
        while not deadline.passed:
            one = todo.get_nowait()
            found[one.pid] = ask(one)


def _no_turn(what: str, pid: int, deadline: Deadline) -> Gap:
    detail = f"the look ended after {deadline.seconds:g} s, before this process's turn"
    return Gap(what=what, reason=GapReason.TIMED_OUT, detail=detail, pid=pid)
