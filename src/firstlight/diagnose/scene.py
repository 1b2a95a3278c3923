"""Everything that the findings look at, worked out once from a bundle. Pure."""

import re
from signal import Signals
from typing import NamedTuple

from firstlight.core.bundle import Bundle, Listener, Lock
from firstlight.core.gap import Gap
from firstlight.core.process import Exit
from firstlight.core.vocabulary import GapReason, Role
from firstlight.diagnose.names import Names
from firstlight.diagnose.ranks import Group, groups, like, workers
from firstlight.diagnose.standing import Standing, last_look, standings

_VIOLENT = {Signals.SIGKILL, Signals.SIGSEGV, Signals.SIGABRT, Signals.SIGBUS, Signals.SIGILL, Signals.SIGFPE}
_NUMBERED = re.compile(r"(tp|pp|dp|ep|rank|worker)[\W_]*\d", re.IGNORECASE)


class Scene(NamedTuple):
    """A bundle, and where everybody in it stands."""

    bundle: Bundle
    standings: tuple[Standing, ...]
    groups: tuple[Group, ...]
    names: Names
    bare_locks: tuple[Lock, ...]
    foreign_listeners: tuple[Listener, ...]
    ended: tuple[Exit, ...]
    deaths: tuple[Exit, ...]

    def standing(self, pid: int) -> Standing | None:
        return next((one for one in self.standings if one.pid == pid), None)

    def name(self, pid: int) -> str:
        return self.names.of(pid)

    def is_rank(self, gone: Exit) -> bool:
        """Whether somebody who ended was one of several that do the same work."""
        return gone.rank >= 0 or gone.role is Role.WORKER or has_like(gone, self.standings)

    def waiters_for(self, pids: tuple[int, ...]) -> tuple[int, ...]:
        """Processes that wait for any of `pids`, directly, through others, or because they are ranks in a meeting.

        Helpers are left out: a resource tracker waits for everybody, all its life.
        """
        reached = set(pids)
        patient = [one for one in self.standings if one.look.process.role is not Role.HELPER]
        ranks = {one.pid for one in workers(self.standings)}
        ranks |= {gone.id.pid for gone in self.deaths if self.is_rank(gone)}
        if reached & ranks:
            reached |= {one.pid for group in self.groups if group.together for one in group.members}
        while True:
            more = {one.pid for one in patient if one.pid not in reached and reached & set(one.wait.pids)}
            if not more:
                return tuple(one.pid for one in self.standings if one.pid in reached and one.pid not in pids)
            reached |= more


def scene_of(bundle: Bundle) -> Scene:
    """Read a bundle once."""
    look = last_look(bundle)
    stands = standings(bundle)
    ended = ends(bundle, stands)
    locks = look.locks if look and isinstance(look.locks, tuple) else ()
    listeners = look.listeners if look and isinstance(look.listeners, tuple) else ()
    own = {one.pid for one in stands}
    owned_ports = {listener.port for listener in listeners if listener.pid in own}
    return Scene(
        bundle=bundle,
        standings=stands,
        groups=groups(stands),
        names=Names(bundle),
        bare_locks=tuple(lock for lock in locks if lock.kind == "file"),
        foreign_listeners=tuple(one for one in listeners if one.pid not in own and one.port not in owned_ports),
        ended=ended,
        deaths=deaths(ended, stands),
    )


def ends(bundle: Bundle, standings: tuple[Standing, ...]) -> tuple[Exit, ...]:
    """Every end that was seen, in order; a zombie of which no exit was noted counts, too."""
    noted = {gone.id for gone in bundle.exits}
    zombies = (_exit_of(one, bundle.at) for one in standings if one.state == "Z")
    unnoted = (gone for gone in zombies if gone.id not in noted)
    return tuple(sorted((*bundle.exits, *unnoted), key=lambda gone: gone.at))


def deaths(ended: tuple[Exit, ...], standings: tuple[Standing, ...]) -> tuple[Exit, ...]:
    """The ends that the server was not expected to survive, in order.

    Compilers and small programs that a server asks something come and go, and may fail; they are no death. What is
    one: a front, an engine or a worker; one of several numbered ranks of which others live; a process that was killed
    by a signal nobody sends in peace. If nothing at all is left, it is whoever failed, or else whoever ended last.
    """
    gone_ids = {gone.id for gone in ended}
    alive = tuple(one for one in standings if one.look.process.id not in gone_ids)
    own = tuple(gone for gone in ended if gone.role is not Role.COMPILER)
    if alive:
        return tuple(gone for gone in own if _matters(gone, alive))
    return tuple(gone for gone in own if not gone.clean) or own[-1:]


def _matters(gone: Exit, alive: tuple[Standing, ...]) -> bool:
    if gone.rank >= 0 or gone.role in {Role.FRONT, Role.ENGINE, Role.WORKER}:
        return True
    return gone.oom or gone.signal in _VIOLENT or has_like(gone, alive)


def has_like(gone: Exit, alive: tuple[Standing, ...]) -> bool:
    """Whether others of its kind are there, as the other ranks are when one has died."""
    numbered = _NUMBERED.search(gone.name) is not None
    return numbered and any(like(one.look.process.name) == like(gone.name) for one in alive)


def _exit_of(one: Standing, at: float) -> Exit:
    process = one.look.process
    unseen = Gap(
        what="exit status", reason=GapReason.NOT_SUPPORTED, detail="only its parent is told", pid=process.id.pid
    )
    return Exit(
        id=process.id,
        name=process.name,
        at=at,
        code=unseen,
        role=process.role,
        rank=process.rank,
        label=process.label,
    )
