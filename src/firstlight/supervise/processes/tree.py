"""The process tree of a server, known at all times and cheaply.

One listing of /proc a refresh; only pids that are new, and the members themselves, are read any further. A process
belongs to the tree if its parent does, if it was orphaned into the hands of a reaper (the guard of a launched
server), or if it sits in a session or process group that a member leads; the last two find whoever forked twice.
"""

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from firstlight import procfs
from firstlight.clock import Clock
from firstlight.core.gap import Gap
from firstlight.core.process import Process, ProcessId
from firstlight.core.vocabulary import GapReason, Role
from firstlight.supervise.processes.slow_reads import Reader

STRANGERS_AGAIN_S = 30.0
"""How often all others are looked at again: a pid may have changed hands between two refreshes."""
TITLES_YOUNG_S = 10.0
"""A process this young may still be about to name itself; its title is read at every refresh."""
TITLES_AGAIN_S = 5.0
TITLES_WAIT_S = 0.05
"""How long a refresh waits for the titles of newcomers. Usually it takes far less than a millisecond."""
REMEMBERED_MAX = 10_000
"""Processes that are gone and still known by name."""


class Identity(Protocol):
    """What an engine's profile makes of a title."""

    @property
    def role(self) -> Role: ...
    @property
    def label(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class TreeChange:
    """What a refresh found. `changed` are members that have a new title; they kept their identity."""

    appeared: tuple[Process, ...] = ()
    gone: tuple[ProcessId, ...] = ()
    changed: tuple[Process, ...] = ()


@dataclass
class _Member:
    process: Process
    comm: str
    since: float
    title_at: float
    session: int
    group: int


class ProcessTree:
    """Every living process of a server. `identify(cmdline, comm)` says what it is to its engine."""

    def __init__(
        self,
        root: ProcessId,
        clock: Clock,
        *,
        reapers: Iterable[int] = (),
        identify: Callable[[tuple[str, ...], str], Identity],
    ) -> None:
        self.root = root
        self._clock = clock
        self._reapers = frozenset(reapers)
        self._identify = identify
        self._members: dict[ProcessId, _Member] = {}
        self._by_pid: dict[int, ProcessId] = {}
        self._led: frozenset[int] = frozenset()
        self._not_led: frozenset[int] = frozenset()
        self._strangers: set[int] = set()
        self._strangers_at = clock.monotonic()
        self._remembered: dict[ProcessId, Process] = {}
        self._titles: Reader[ProcessId, tuple[str, ...]] = Reader(_title, clock, "process titles")

    @property
    def processes(self) -> dict[ProcessId, Process]:
        """The living, oldest first."""
        return {id_: member.process for id_, member in self._members.items()}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Titles that could not be read."""
        return tuple(
            Gap(what="command line", reason=GapReason.TIMED_OUT, detail=_STUCK, pid=id_.pid)
            for id_ in self._titles.stuck
            if id_ in self._members
        )

    def known(self, id_: ProcessId) -> Process | None:
        """A process of the tree, living or gone."""
        member = self._members.get(id_)
        return member.process if member else self._remembered.get(id_)

    def refresh(self) -> TreeChange:
        """Look again. Zombies count as gone, once. With no descriptor left to look with, nothing has changed."""
        now = self._clock.monotonic()
        try:
            newcomers = self._newcomers(set(procfs.pids()), now)
            stats = {id_: _stat(id_.pid) for id_ in self._members}
        except OSError:
            return TreeChange()
        newcomers += [stat for id_, stat in stats.items() if stat is not None and stat.id != id_]  # a pid used again
        gone = self._drop_gone(stats)
        appeared = self._adopt(newcomers, now)
        gone += [id_ for id_ in appeared if id_ not in self._members]
        changed = self._read_titles(now, wait_s=TITLES_WAIT_S if appeared else 0.0)
        return TreeChange(
            appeared=tuple(process for id_ in appeared if (process := self.known(id_))),
            gone=tuple(gone),
            changed=tuple(self._members[id_].process for id_ in changed if id_ not in appeared),
        )

    def close(self) -> None:
        """Let the reader of titles end."""
        self._titles.close()

    def _drop_gone(self, stats: dict[ProcessId, procfs.Stat | None]) -> list[ProcessId]:
        gone = []
        for id_, member in self._members.items():
            stat = stats[id_]
            if stat is None or stat.id != id_ or not lives(stat):
                gone.append(id_)
            else:
                member.session, member.group, member.comm = stat.session, stat.pgrp, stat.comm
        for id_ in gone:
            self._remembered[id_] = self._members.pop(id_).process
            del self._by_pid[id_.pid]
        while len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        return gone

    def _newcomers(self, pids: set[int], now: float) -> list[procfs.Stat]:
        if now - self._strangers_at >= STRANGERS_AGAIN_S:
            self._strangers_at = now
            self._strangers.clear()
        self._strangers &= pids
        stats = (_stat(pid) for pid in pids - self._strangers - self._by_pid.keys())
        return [stat for stat in stats if stat is not None]

    def _adopt(self, newcomers: list[procfs.Stat], now: float) -> list[ProcessId]:
        """Take those in that belong; a newcomer may belong by another newcomer, so again until nobody does."""
        appeared: list[ProcessId] = []
        waiting = newcomers
        while True:
            self._led = self._sessions_and_groups() - self._not_led
            mine = [stat for stat in waiting if self._belongs(stat)]
            if not mine:
                break
            for stat in mine:
                self._take_in(stat, now)
                appeared.append(stat.id)
            waiting = [stat for stat in waiting if stat not in mine]
        self._strangers.update(stat.pid for stat in waiting)
        return sorted(appeared, key=lambda id_: (id_.started, id_.pid))

    def _belongs(self, stat: procfs.Stat) -> bool:
        if stat.pid in self._reapers or stat.pid == os.getpid():  # firstlight may run below what it is to watch
            return False
        if stat.id in self._remembered:  # a zombie may stay on for long
            return False
        if stat.id == self.root or stat.ppid in self._by_pid or stat.ppid in self._reapers:
            return True
        return lives(stat) and (stat.session in self._led or stat.pgrp in self._led)

    def _take_in(self, stat: procfs.Stat, now: float) -> None:
        process = self._identified(Process(id=stat.id, ppid=stat.ppid, name=stat.comm, cmdline=()), (), stat.comm)
        if stat.id == self.root:
            self._not_led = frozenset({stat.session, stat.pgrp, 0} - {stat.pid})
        if not lives(stat):  # died before it was ever seen alive: it has appeared, and is gone
            self._remembered[stat.id] = process
            self._strangers.add(stat.pid)
            return
        self._members[stat.id] = _Member(process, stat.comm, now, float("-inf"), stat.session, stat.pgrp)
        self._by_pid[stat.pid] = stat.id

    def _sessions_and_groups(self) -> frozenset[int]:
        """What members lead or have led. The session and group that the root was born into are not the tree's own."""
        return frozenset(number for member in self._members.values() for number in (member.session, member.group))

    def _read_titles(self, now: float, wait_s: float) -> list[ProcessId]:
        for id_, member in self._members.items():
            if now - member.since < TITLES_YOUNG_S or now - member.title_at >= TITLES_AGAIN_S:
                member.title_at = now
                self._titles.ask(id_)
        changed = []
        for id_, cmdline in self._titles.answers(wait_s).items():
            known = self._members.get(id_)
            if known is None or known.process.cmdline == cmdline:
                continue
            known.process = self._identified(known.process, cmdline, known.comm)
            changed.append(id_)
        return changed

    def _identified(self, process: Process, cmdline: tuple[str, ...], comm: str) -> Process:
        who = self._identify(cmdline, comm)
        return Process(
            id=process.id,
            ppid=process.ppid,
            name=who.name or comm,
            cmdline=cmdline,
            role=who.role,
            label=who.label,
            rank=who.rank,
        )


_STUCK = "reading it did not come back: a thread of the process holds its memory lock in the kernel"


def lives(stat: procfs.Stat) -> bool:
    """False for a zombie; a zombie that still counts threads has only lost its first one."""
    return stat.state not in "ZX" or stat.threads > 1


def _stat(pid: int) -> procfs.Stat | None:
    """None for a process that is gone, or may not be seen. Raises OSError if there is no descriptor to look with."""
    try:
        return procfs.stat(pid)
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise
        return None


def _title(id_: ProcessId) -> tuple[str, ...]:
    return procfs.cmdline(id_.pid)
