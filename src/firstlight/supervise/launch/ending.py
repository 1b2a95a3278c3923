"""Ends a tree of processes: ask, wait, insist, verify.

Part of the guard, so it imports nothing but the standard library and reads /proc in a few lines of its own; the
supervisor uses the same code where the guard is gone. Only ever signals a process that it has just found among
the descendants, through a pidfd opened before its start time was checked, so that a pid which changes hands
between the look and the signal cannot hit a stranger.
"""

import os
import signal
from collections.abc import Callable, Iterable
from typing import NamedTuple

INSIST_S = 5.0
"""How long SIGKILL is given, round after round. Whoever is left then sits in the kernel (state D)."""

CHASE_ROUNDS = 100


class Member(NamedTuple):
    """A process as /proc/PID/stat has it. `started` is in clock ticks after boot."""

    pid: int
    started: int
    ppid: int
    session: int
    state: str
    threads: int
    name: str

    @property
    def alive(self) -> bool:
        """False for a zombie; a zombie that still counts threads has only lost its first one."""
        return self.state not in "ZX" or self.threads > 1


def look(pid: int | str) -> Member | None:
    """One process, None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib would double the guard's memory
            data = file.read()
    except OSError:
        return None
    begin, end = data.index(b"("), data.rindex(b")")
    f = data[end + 2 :].split()
    name = data[begin + 1 : end].decode(errors="replace")
    return Member(int(data[:begin]), int(f[19]), int(f[1]), int(f[3]), f[0].decode(), int(f[17]), name)


def everybody() -> dict[int, Member]:
    """All processes that are visible from here."""
    found = (look(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {member.pid: member for member in found if member is not None}


def descendants(of: Iterable[int], world: dict[int, Member]) -> list[Member]:
    """Those below the given pids, however deep; the given ones themselves are not among them."""
    below: dict[int, list[Member]] = {}
    for member in world.values():
        below.setdefault(member.ppid, []).append(member)
    found: dict[int, Member] = {}
    parents = list(of)
    while parents:
        for child in below.get(parents.pop(), ()):
            if child.pid not in found:
                found[child.pid] = child
                parents.append(child.pid)
    return list(found.values())


def own_children() -> list[int]:
    """Direct children of this (single-threaded) process, oldest first; none where the kernel does not list them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:  # noqa: PTH123
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def send(member: Member, number: int) -> bool:
    """Signal exactly this process; False if it is gone, or may not be signalled."""
    try:
        pidfd = os.pidfd_open(member.pid)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):  # before Linux 5.3, or a sandbox without pidfds
        return _send_by_pid(member, number)
    try:
        now = look(member.pid)
        if now is None or now.started != member.started:
            return False
        signal.pidfd_send_signal(pidfd, number)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(pidfd)


def _send_by_pid(member: Member, number: int) -> bool:
    now = look(member.pid)
    if now is None or now.started != member.started:
        return False
    try:
        os.kill(member.pid, number)
    except OSError:
        return False
    return True


class Ended(NamedTuple):
    """How it went. `left` names those that even SIGKILL has not ended yet: "name (pid 12, state D)"."""

    asked: int
    killed: int
    left: tuple[str, ...]


class Ending:
    """The end of a tree, in steps that never block; the caller steps until there is a result.

    Asked is whoever has no parent within the tree, which at first is the server's first process alone, since its
    own handler knows best how to end the others. When a parent is gone without having ended its children (a shell
    that only wrapped the server), these are asked in turn. Stopped processes are continued, to be able to hear it.
    From `insist_at` on (monotonic seconds) everybody is killed, frozen first so that none forks while the others die.
    `escapers` lists pids into whose number whoever escapes must come, faster than `members` can look through all of
    /proc.
    """

    def __init__(
        self,
        members: Callable[[], list[Member]],
        insist_at: float,
        *,
        escapers: Callable[[], list[int]],
    ) -> None:
        self._members = members
        self._escapers = escapers
        self._insist_at = insist_at
        self._asked: set[tuple[int, int]] = set()
        self._killed: set[tuple[int, int]] = set()
        self._empty_scans = 0

    @property
    def insisting(self) -> bool:
        return bool(self._killed)

    def hurry(self, insist_at: float) -> None:
        """Insist then, if that is sooner."""
        self._insist_at = min(self._insist_at, insist_at)

    def step(self, now: float) -> Ended | None:
        """Look who is left and do what is due. `now` is monotonic seconds."""
        alive = [member for member in self._members() if member.alive]
        # One scan of /proc is no snapshot: a child may be born behind its back, so nobody must be seen twice.
        self._empty_scans = 0 if alive else self._empty_scans + 1
        if self._empty_scans > 1 or (alive and now >= self._insist_at + INSIST_S):
            left = tuple(f"{m.name} (pid {m.pid}, state {m.state})" for m in alive)
            return Ended(len(self._asked), len(self._killed), left)
        if now >= self._insist_at:
            self._insist(alive)
        else:
            self._ask(alive)
        return None

    def _ask(self, alive: list[Member]) -> None:
        inside = {member.pid for member in alive}
        for member in alive:
            key = (member.pid, member.started)
            if member.ppid not in inside and key not in self._asked and send(member, signal.SIGTERM):
                self._asked.add(key)
            if member.state == "T":
                send(member, signal.SIGCONT)

    def _insist(self, alive: list[Member]) -> None:
        for member in alive:
            send(member, signal.SIGSTOP)
        self._chase()
        for member in alive:
            if send(member, signal.SIGKILL):
                self._killed.add((member.pid, member.started))

    def _chase(self) -> None:
        """Freeze those who fork and exit faster than a scan of /proc takes; the next scan finds them frozen."""
        rounds_without = 0
        for _ in range(CHASE_ROUNDS):
            seen = [member for pid in reversed(self._escapers()) if (member := look(pid))]
            running = [member for member in seen if member.alive and member.state not in "Tt"]
            rounds_without = 0 if running else rounds_without + 1
            if rounds_without > 1:
                return
            for member in running:
                send(member, signal.SIGSTOP)
