"""Who belongs to a server whose parent, the guard, has died: known by identity, by session, by mark, and by descent.

Part of the guard, so it imports nothing but the standard library; firstlight uses the same code.
"""

import os
from collections.abc import Iterable

from firstlight.supervise.launch.ending import Member, descendants, everybody, look

ENVIRONMENT_BYTES = 4 << 20
STRANGERS_MAX = 10_000
RUN_VARIABLE = "FIRSTLIGHT_RUN"
"""Set in the server's environment, and inherited by all of its processes: by it they are known again as ours."""

Identity = tuple[int, int]
"""A pid and its start time in clock ticks after boot."""


def mark_of(run: str) -> str:
    """What stands in the environment of whoever belongs to this run."""
    return f"{RUN_VARIABLE}={run}"


class Family:
    """The processes of the server with this root. `mark` is "NAME=value" in the environment that they inherit.

    Whoever leaves the session, drops the mark and loses its parent, all between two looks, is not known any more.
    Nobody who was born before the root can belong.
    """

    def __init__(self, root: Identity, mark: str, known: Iterable[Identity] = ()) -> None:
        self._root = root
        self._mark = mark.encode()
        self._known = {root, *known}
        self._sessions = {root[0]} - {0}
        self._strangers: set[Identity] = set()
        self._seen: set[int] = set()

    @property
    def known(self) -> list[Identity]:
        """Those that the last look found."""
        return list(self._known)

    def learn(self, pids: Iterable[int]) -> None:
        """These belong for certain: they are the guard's own children. Cheap while they stay the same."""
        numbers = {pid: (pid, started) for pid, started in self.known}
        children = {numbers.get(pid) or _identity(pid) for pid in pids}
        if children:
            self._known = {self._root, *(child for child in children if child)}

    def members(self) -> list[Member]:
        """Look at everybody; those that belong, zombies included."""
        world = everybody()
        world.pop(os.getpid(), None)
        self._strangers &= {_key(member) for member in world.values()}
        self._sessions -= self._numbers_that_changed_hands(world)
        tops = [member for member in world.values() if self.includes(member)]
        found = {member.pid: member for member in (*tops, *descendants([top.pid for top in tops], world))}
        self._known = {self._root, *map(_key, found.values())}
        self._sessions = {self._root[0]} - {0} - self._numbers_that_changed_hands(world)
        self._sessions |= {member.session for member in found.values()}
        self._seen = set(world)
        return list(found.values())

    def newborn(self) -> list[int]:
        """Pids of those members that were born since the last look at everybody, faster than it can be repeated."""
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
        parents = {pid for pid, _ in self._known}
        born = (look(pid) for pid in sorted(pids - self._seen))
        return [member.pid for member in born if member and (member.ppid in parents or self.includes(member))]

    def includes(self, member: Member) -> bool:
        """Whether this one belongs by itself, whoever its parent is."""
        if member.started < self._root[1] or member.pid == os.getpid():
            return False
        return _key(member) in self._known or member.session in self._sessions or self._is_marked(member)

    def _numbers_that_changed_hands(self, world: dict[int, Member]) -> set[int]:
        """The root's pid, once a stranger has it, who may lead a session of that number."""
        now = world.get(self._root[0])
        return {now.pid} if now is not None and now.started != self._root[1] else set()

    def _is_marked(self, member: Member) -> bool:
        """By its environment. That of a process in state D is not asked for: its memory lock may be held for ever."""
        if member.state in "DZX" or _key(member) in self._strangers:
            return False
        try:
            with open(f"/proc/{member.pid}/environ", "rb") as file:  # noqa: PTH123 - as in `ending`
                environment = file.read(ENVIRONMENT_BYTES)
        except OSError:
            return False
        marked = self._mark in environment.split(b"\0")
        if environment and not marked:  # in the middle of an exec it is empty for a moment
            if len(self._strangers) >= STRANGERS_MAX:
                self._strangers.clear()
            self._strangers.add(_key(member))
        return marked


def _key(member: Member) -> Identity:
    return (member.pid, member.started)


def _identity(pid: int) -> Identity | None:
    member = look(pid)
    return _key(member) if member else None
