"""Which ends of processes a server does not get over, and which of them is the cause of the others. Pure.

A server starts many small programs, which come and go and may fail; nobody misses them. Who is *missed*: its first
process, a front, an engine, a rank, whoever has the name of one that lives on (numbers aside), and whoever crashed.
Any other that failed after more than a few seconds only speaks for it.
"""

import re
from collections.abc import Sequence
from signal import Signals
from typing import NamedTuple

from firstlight.core.process import Exit, Process, ProcessId
from firstlight.core.vocabulary import Role

ASKED_TO_END = frozenset({Signals.SIGTERM, Signals.SIGINT, Signals.SIGHUP})
"""Sent by whoever wants a process to end: a supervisor, a person, a terminal; never by the OOM killer."""
CRASHES = frozenset(
    {Signals.SIGABRT, Signals.SIGBUS, Signals.SIGSEGV, Signals.SIGILL, Signals.SIGFPE, Signals.SIGSYS}
)
TOGETHER_S = 10.0
"""Ends so close to each other belong to one event: a server asked to end takes some seconds over its ranks."""
SCRIPT_LIFE_S = 3.0
"""What fails younger than that was a script; ranks import for longer."""
TICKS_A_SECOND = 100
"""USER_HZ, the unit of `ProcessId.started`: 100 on every architecture that these servers run on."""
_SHELL_STATUS = 128
"""A shell, and a server that handles the signal, exit with this plus its number."""
_NUMBERED = re.compile(r"(tp|pp|dp|ep|rank|worker)[\W_]*\d", re.IGNORECASE)


class Lost(NamedTuple):
    """Ends that matter, the cause first and then in order. `missed` is false where they only speak for a loss."""

    exits: tuple[Exit, ...] = ()
    missed: bool = False


def first_loss(exits: Sequence[Exit], root: ProcessId | None = None, launched: float | None = None) -> Exit | None:
    """The end that the others follow from; None if nobody is missed.

    Args:
        exits: every end that was seen.
        root: the server's first process; without it, only ends that matter whoever it is are counted.
        launched: when that was started (wall clock), which tells how old the others were.
    """
    return next(iter(losses(exits, root, launched=launched).exits), None)


def losses(
    exits: Sequence[Exit],
    root: ProcessId | None = None,
    *,
    launched: float | None = None,
    alive: Sequence[Process] = (),
) -> Lost:
    """Every end that matters among `exits`, where `alive` lives on."""
    ended = sorted((gone for gone in exits if gone.role is not Role.COMPILER), key=lambda gone: gone.at)
    missed = [gone for gone in ended if _is_missed(gone, root, ended, alive)]
    booted = _booted(exits, root, launched)
    failed = [gone for gone in ended if gone not in missed and _failed(gone) and _age(gone, booted) >= SCRIPT_LIFE_S]
    if not missed:
        return Lost(tuple(failed))
    cause = _cause(missed, failed, root)
    return Lost((cause, *(gone for gone in missed if gone is not cause)), missed=True)


def is_orderly(gone: Exit) -> bool:
    """Whether a process ended as if its work were done, or because it was asked to."""
    return gone.clean or was_asked(gone)


def was_asked(gone: Exit) -> bool:
    """Whether a process ended by a signal that asks for it, or with the status that tells of one."""
    by_status = isinstance(gone.code, int) and gone.code - _SHELL_STATUS in ASKED_TO_END
    return gone.signal in ASKED_TO_END or by_status


def like(name: str) -> str:
    """A name without its numbers: worker_TP0 and worker_TP1 are alike."""
    return re.sub(r"\d+", "#", name)


def has_like(gone: Exit, alive: Sequence[Process]) -> bool:
    """Whether others of its kind are there, as the other ranks are when one has died."""
    numbered = _NUMBERED.search(gone.name) is not None
    return numbered and any(like(one.name) == like(gone.name) for one in alive)


def _is_missed(gone: Exit, root: ProcessId | None, ended: Sequence[Exit], alive: Sequence[Process]) -> bool:
    if gone.id == root or gone.oom or gone.signal == Signals.SIGKILL or gone.signal in CRASHES:
        return True
    told = gone.signal is not None or _failed(gone)
    if not told and (_is_copy(gone, ended, alive) or (gone.role is Role.FRONT and root is not None)):
        return False
    peer = gone.rank >= 0 or gone.role in {Role.FRONT, Role.ENGINE, Role.WORKER}
    return peer or has_like(gone, alive)


def _is_copy(gone: Exit, ended: Sequence[Exit], alive: Sequence[Process]) -> bool:
    """Whether it was forked from one of its own name and never took another: a helper of that one, not the one."""
    outlived = [other for other in ended if other.at > gone.at]
    others: list[Process | Exit] = [*alive, *outlived]
    return any(one.id.started < gone.id.started and _called(one) == _called(gone) for one in others)


def _called(one: Process | Exit) -> tuple[str, int]:
    """What its engine calls a process; its name is another before it has given itself a title."""
    return one.label or one.name, one.rank


def _failed(gone: Exit) -> bool:
    return isinstance(gone.code, int) and gone.code != 0


def _booted(exits: Sequence[Exit], root: ProcessId | None, launched: float | None) -> float:
    """The latest wall time at which the machine can have booted: nobody ends before it started."""
    bounds = [gone.at - gone.id.started / TICKS_A_SECOND for gone in exits]
    if root is not None and launched is not None:
        bounds.append(launched - root.started / TICKS_A_SECOND)
    return min(bounds, default=0.0)


def _age(gone: Exit, booted: float) -> float:
    """The seconds that a process lived at least."""
    return gone.at - gone.id.started / TICKS_A_SECOND - booted


def _broke(first: Exit, others: Sequence[Exit], root: ProcessId | None) -> Exit | None:
    """Who failed while others ended in order around the same time: a server that has lost a rank ends the rest, and
    these may be gone before it. Its first process fails with whatever it ran."""
    at_once = (gone for gone in others if abs(gone.at - first.at) <= TOGETHER_S and gone.id != root)
    return min((gone for gone in at_once if not is_orderly(gone)), key=lambda gone: gone.at, default=None)


def _cause(missed: Sequence[Exit], failed: Sequence[Exit], root: ProcessId | None) -> Exit:
    """Who was the first; a root that is asked to end ends its ranks before itself, and one that only waits for a
    program fails with it."""
    first = missed[0]
    if first.id != root and is_orderly(first) and (broken := _broke(first, (*missed, *failed), root)):
        return broken
    ended = next((gone for gone in missed if gone.id == root), None)
    if ended and is_orderly(ended) and is_orderly(first) and ended.at - first.at <= TOGETHER_S:
        return ended
    just_before = (gone for gone in failed if 0 <= first.at - gone.at <= TOGETHER_S)
    return first if is_orderly(first) else next(just_before, first)
