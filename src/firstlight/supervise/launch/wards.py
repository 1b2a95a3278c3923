"""Whom a guard guards: a server that it started itself, or one that it took over when its first guard had died.

Part of the guard: standard library only.
"""

import os
import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from firstlight.supervise.launch.ending import Member, descendants, everybody, look, own_children
from firstlight.supervise.launch.family import Family, Identity


class Buried(NamedTuple):
    """A process that has ended and was reaped. `status` is as waitpid(2) has it."""

    pid: int
    started: int
    name: str
    status: int


class Wards(Protocol):
    """What differs between the two."""

    look_every_s: float
    """How often they must be looked at while nothing happens."""

    def members(self) -> list[Member]:
        """Everybody."""
        ...

    def escapers(self) -> list[int]:
        """Pids among which those are found that fork and exit faster than `members` can look."""
        ...

    def attend(self) -> Iterator[Buried]:
        """Do what has to be done now and then; those that were found to have ended."""
        ...

    def events(self) -> list[int]:
        """Descriptors that become readable when something happens to the root."""
        ...

    def root_lives(self) -> bool: ...


class Born:
    """Started by this guard: everybody is below it, and its orphans become its children. SIGCHLD tells all."""

    look_every_s = 60.0

    def __init__(self, root: int) -> None:
        self._root = root
        self.deputy = 0

    def members(self) -> list[Member]:
        world = everybody()
        world.pop(self.deputy, None)
        return descendants([os.getpid()], world)

    def escapers(self) -> list[int]:
        return [pid for pid in own_children() if pid != self.deputy]

    def attend(self) -> Iterator[Buried]:
        """Reap every child that has ended, with its identity, which only lasts until it is collected."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            member = look(ended.si_pid)
            _, status = os.waitpid(ended.si_pid, 0)
            if ended.si_pid == self._root:
                self._root = 0
            if ended.si_pid != self.deputy:
                yield Buried(ended.si_pid, member.started if member else 0, member.name if member else "", status)

    def events(self) -> list[int]:
        return []

    def root_lives(self) -> bool:
        return self._root != 0


class Adopted:
    """Orphans of a guard that died. They are children of firstlight, later of init, and only known by `Family`."""

    look_every_s = 2.0
    """Who forks twice into a session of its own is known only if it was seen while its parent lived."""

    def __init__(self, root: Identity, family: Family) -> None:
        self._root = root
        self._family = family
        self._pidfd = _pidfd(root)
        self._next_look = 0.0

    def members(self) -> list[Member]:
        return self._family.members()

    def escapers(self) -> list[int]:
        return self._family.newborn()

    def attend(self) -> Iterator[Buried]:
        """Look at everybody when it is time. Reaping is up to whoever inherited them."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + self.look_every_s
            self._family.members()
        yield from ()

    def events(self) -> list[int]:
        return [self._pidfd] if self._pidfd >= 0 and self.root_lives() else []

    def root_lives(self) -> bool:
        member = look(self._root[0])
        return member is not None and member.started == self._root[1] and member.alive


def _pidfd(root: Identity) -> int:
    try:
        return os.pidfd_open(root[0])
    except (OSError, AttributeError):  # it is gone, or before Linux 5.3: it is looked at in any case
        return -1
