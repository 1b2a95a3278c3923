"""Where each process stands: the thread that tells most, and what it waits for. Pure."""

import re
from dataclasses import dataclass
from functools import cached_property

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.look import Frame, Look, ProcessLook, ThreadLook
from firstlight.diagnose import frames, waits
from firstlight.diagnose.compare import Change, Difference, ProcessChange, compare
from firstlight.diagnose.waits import Kind, Wait

_FREEZER = frozenset({"do_freezer_trap", "__refrigerator"})
_JOINS = re.compile(r"(^|\.)(join|_wait_for_tstate_lock|_shutdown|shutdown)$")


@dataclass(frozen=True, eq=False)
class Standing:
    """One process: its most telling thread, what that waits for, and what the process did between two looks."""

    look: ProcessLook
    thread: ThreadLook | None
    wait: Wait
    place: frames.Place | None
    change: ProcessChange | None

    @property
    def pid(self) -> int:
        return self.look.process.id.pid

    @property
    def rank(self) -> int:
        return self.look.process.rank

    @property
    def state(self) -> str:
        return self.look.sample.state

    @property
    def stopped(self) -> bool:
        return self.state in {"T", "t"}

    @cached_property
    def frozen(self) -> bool:
        """Whether its control group is frozen (docker pause): its threads lie in the kernel's freezer."""
        kernels = (one.kernel for one in self.look.threads if not isinstance(one.kernel, Gap))
        innermost = {name for functions in kernels for name in functions[:2]}
        return bool(_FREEZER & (innermost | {one.wchan for one in self.look.threads if isinstance(one.wchan, str)}))

    @property
    def spins(self) -> bool:
        return self.change is not None and self.change.change is Change.SPINNING

    @property
    def moves(self) -> bool:
        return self.change is not None and self.change.change is Change.MOVING

    @property
    def stack(self) -> tuple[Frame, ...]:
        return self.thread.stack if self.thread and not isinstance(self.thread.stack, Gap) else ()

    @cached_property
    def single(self) -> bool:
        """Whether nothing but this thread runs Python in the process, save those that idle or wait for others to end:
        then what the thread waits for, the process waits for."""
        python = [one for one in self.look.threads if isinstance(one.stack, Gap) or one.stack]
        others = [one for one in python if one is not self.thread]
        return not any(
            isinstance(one.stack, Gap) or not (_is_idle_helper(one) or _only_waits_for_threads(one)) for one in others
        )

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The native frames of the thread, then the Python ones, each innermost first, in words; those without a name
        say nothing."""
        stacks = (self.thread.native, self.thread.stack) if self.thread else ()
        told = (frames.words_of(frame) for stack in stacks if not isinstance(stack, Gap) for frame in stack)
        return tuple(words for words in told if words)


def last_look(bundle: Bundle) -> Look | None:
    return bundle.looks[-1] if bundle.looks else None


def difference(bundle: Bundle) -> Difference | None:
    """The first and the last look compared; None where there are not two."""
    return compare(bundle.looks[0], bundle.looks[-1]) if len(bundle.looks) > 1 else None


def standings(bundle: Bundle, changes: Difference | None) -> tuple[Standing, ...]:
    """Where every process of the last look stands; `changes` is what moved since the first."""
    look = last_look(bundle)
    if look is None:
        return ()
    locks = look.locks if isinstance(look.locks, tuple) else ()
    changed = {one.id.pid: one for one in reversed(changes.processes)} if changes else {}
    found = []
    for one in look.processes:
        change = changed.get(one.process.id.pid)
        thread = telling_thread(one, change)
        wait = waits.wait_of(thread, one, locks) if thread else Wait(Kind.UNKNOWN, "")
        place = frames.place(thread.stack) if thread and not isinstance(thread.stack, Gap) else None
        found.append(Standing(one, thread, wait, place, change))
    return tuple(found)


def telling_thread(look: ProcessLook, change: ProcessChange | None = None) -> ThreadLook | None:
    """The thread that says most about what the process waits for."""
    spins = change is not None and change.change is Change.SPINNING
    ranked = ((_rank(thread, look, spins), index, thread) for index, thread in enumerate(look.threads))
    return min(ranked, key=lambda row: row[:2], default=(0, 0, None))[2]


def _rank(thread: ThreadLook, look: ProcessLook, spins: bool) -> int:
    """Small for a thread that tells much."""
    main = thread.tid == look.process.id.pid
    wait = waits.wait_of(thread, look, ())
    if spins and wait.kind is Kind.RUNS:
        return 0
    if stands_in_somebodys_way(thread, wait):
        return 1 if main else 2
    if main:
        return 3 if not _only_waits_for_threads(thread) else 9 if _has_one_other(look) else 6
    if isinstance(thread.stack, Gap):
        return 5
    if not thread.stack or _is_idle_helper(thread):
        return 8
    return 7 if _beats(thread, wait) else 5


def stands_in_somebodys_way(thread: ThreadLook, wait: Wait) -> bool:
    """A wait that a healthy thread is hardly ever seen in."""
    if wait.kind in {Kind.FILE_LOCK, Kind.OPEN}:
        return True
    writes = wait.kind is Kind.WRITE and any(one.kind in {"pipe", "fifo", "socket"} for one in wait.files)
    if wait.kind is Kind.FUTEX and thread.futex is not None and thread.futex.owner:
        return True
    return writes or waits.acquires_lock(thread) or waits.polls_lock_file(thread)


def _only_waits_for_threads(thread: ThreadLook) -> bool:
    here = None if isinstance(thread.stack, Gap) else frames.place(thread.stack)
    operation = here and (here.operation or here.leaf)
    return bool(operation and _JOINS.search(operation.function))


def _has_one_other(look: ProcessLook) -> bool:
    """Whether only one thread besides the main one runs Python: then it is the one that is waited for."""
    python = [one for one in look.threads if not isinstance(one.stack, Gap) and one.stack]
    return len(python) == 2 and len(look.threads) == 2


def _is_idle_helper(thread: ThreadLook) -> bool:
    """A thread in which nothing of the program itself is on the stack: a pool's worker without work, a monitor."""
    here = None if isinstance(thread.stack, Gap) else frames.place(thread.stack)
    return here is None or here.caller is None


def _beats(thread: ThreadLook, wait: Wait) -> bool:
    return wait.kind in {Kind.SLEEPS, Kind.FUTEX, Kind.POLL, Kind.ACCEPT}
