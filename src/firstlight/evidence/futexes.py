"""Who holds the mutex that a thread waits for, read from the mutex itself.

Price: reads. glibc's `pthread_mutex_t` on 64-bit machines begins with six int: lock word, count, owner, users, kind
(sysdeps/nptl/bits/struct_mutex.h, x86 and generic, the same since 2.4). Semaphores, conditions, rwlocks, barriers and
the locks of other runtimes wait in futexes, too, and have anything at these places; so an owner is believed only
where the wait, every field of the mutex and the thread that it names fit together. Python's own locks have no owner.
"""

import platform
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

from firstlight import procfs
from firstlight.core.look import Futex

Memory = Callable[[int, int], bytes]
"""Reads `length` bytes at `address` of the thread's process; may raise OSError."""

MACHINES = frozenset({"x86_64", "aarch64"})

# linux/futex.h
_WAIT, _LOCK_PI, _WAIT_BITSET, _WAIT_REQUEUE_PI, _LOCK_PI2 = 0, 6, 9, 11, 13
_PRIVATE, _REALTIME = 128, 256
_TID_MASK, _WAITERS = 0x3FFFFFFF, 0x80000000

# nptl/pthreadP.h
_RECURSIVE, _ERROR_CHECK = 1, 2
_TYPE, _ROBUST, _INHERITS, _SHARED, _ELISION = 3, 16, 32, 128, 256 | 512
_KNOWN = _TYPE | _ROBUST | _INHERITS | _SHARED | _ELISION
_CONTENDED = 2
_USERS_MAX = 4096
"""Its owner, and those in conditions with it; where a pointer lies instead, its upper half is larger than this."""
_TID_MAX = 1 << 22
_MUTEX = struct.Struct("=IIiIi")
_ALIGNED = 8


class FutexWait(NamedTuple):
    """The arguments of a futex call that waits: for the word at `address` to be no longer `value`."""

    address: int
    operation: int
    value: int
    timed: bool

    @property
    def shared(self) -> bool:
        return not self.operation & _PRIVATE

    @property
    def command(self) -> int:
        return self.operation & ~(_PRIVATE | _REALTIME)


class Owners:
    """Who can own a mutex that a thread of process `pid` waits for: a thread of its own, or anybody for a shared one.

    A mutex names its owner by the id that the process itself knows, which is another one in a container.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid

    @cached_property
    def own(self) -> dict[int, int]:
        """The threads as seen from here, by the ids that the process knows them by. Raises OSError."""
        tids = procfs.tids(self._pid)
        if self._is_same_namespace:
            return {tid: tid for tid in tids}
        return {self._inner(tid): tid for tid in tids}

    def anybody(self, tid: int) -> int:
        """A live thread of any process with this id; 0 if there is none, or ids mean something else to the target."""
        with suppress(OSError):
            return tid if self._is_same_namespace and procfs.stat(tid).state not in "ZX" else 0
        return 0

    @cached_property
    def _is_same_namespace(self) -> bool:
        return self._inner(self._pid) == self._pid

    def _inner(self, tid: int) -> int:
        return int(procfs.status(self._pid, tid).get("NSpid", str(tid)).split()[-1])


def waits(arguments: tuple[int, ...]) -> FutexWait | None:
    """The wait that futex(2) with these arguments is; None for a call that wakes. Pure."""
    address, operation, value, timeout = arguments[:4]
    found = FutexWait(address, operation & 0xFFFFFFFF, value & 0xFFFFFFFF, bool(timeout))
    return found if found.command in {_WAIT, _LOCK_PI, _WAIT_BITSET, _WAIT_REQUEUE_PI, _LOCK_PI2} else None


def futex_of(wait: FutexWait, tid: int, memory: Memory, owners: Owners, machine: str = platform.machine()) -> Futex:
    """What is known of the futex that thread `tid` waits for; without an owner where anything does not fit."""
    owner = orphan = 0
    if machine in MACHINES and wait.address % _ALIGNED == 0:
        with suppress(OSError, OverflowError, struct.error):
            fields = _MUTEX.unpack(memory(wait.address, _MUTEX.size))
            owner, orphan = _owner(wait, tid, fields, owners)
    return Futex(address=wait.address, owner=owner, shared=wait.shared, orphan=orphan)


def _owner(wait: FutexWait, tid: int, fields: tuple[int, ...], owners: Owners) -> tuple[int, int]:
    """The owner, and the orphan as in `core.look.Futex`."""
    named, kind = named_owner(wait, fields), fields[4]
    if not named:
        return 0, 0
    owner = owners.own.get(named, 0)
    if owner == tid and not _may_wait_for_itself(kind):
        return 0, 0
    if not owner and kind & _SHARED:
        return owners.anybody(named), 0
    return owner, 0 if owner else named


def named_owner(wait: FutexWait, fields: tuple[int, ...]) -> int:
    """The thread that the memory at a futex names as its owner, if that is a locked glibc mutex; else 0. Pure."""
    word, count, owner, users, kind = fields
    if not 0 < owner <= _TID_MAX or kind & ~_KNOWN:
        return 0
    if not 1 <= users <= _USERS_MAX:
        return 0
    counts = kind & _TYPE == _RECURSIVE or kind & (_ROBUST | _INHERITS)
    if bool(count) != bool(counts):
        return 0
    if wait.shared != bool(kind & _SHARED) and not kind & _ROBUST:
        return 0
    return owner if _waits_for_that_word(wait, word, owner, kind) else 0


def _waits_for_that_word(wait: FutexWait, word: int, owner: int, kind: int) -> bool:
    """Whether a thread that finds a mutex of this kind locked would wait just so."""
    if kind & _INHERITS:
        return wait.command in {_LOCK_PI, _LOCK_PI2} and word & _TID_MASK == owner
    # A mutex is waited for without a limit by WAIT, with one by WAIT_BITSET; other runtimes mix that differently.
    if wait.command not in ({_WAIT_BITSET, _WAIT} if wait.timed else {_WAIT}):
        return False
    if kind & _ROBUST:
        return word == wait.value == owner | _WAITERS
    return word == wait.value == _CONTENDED


def _may_wait_for_itself(kind: int) -> bool:
    """A normal mutex deadlocks with its own owner; a recursive one counts, and the others report an error."""
    return kind & _TYPE not in {_RECURSIVE, _ERROR_CHECK} and not kind & _INHERITS
