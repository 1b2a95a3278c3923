"""Everything that the findings look at, worked out once from a bundle. Pure."""

from typing import NamedTuple

from firstlight.core.bundle import Bundle, Listener, Lock
from firstlight.core.process import Exit
from firstlight.core.vocabulary import Role
from firstlight.diagnose.names import Names
from firstlight.diagnose.ranks import Group, groups, workers
from firstlight.diagnose.standing import Standing, last_look, standings


class Scene(NamedTuple):
    """A bundle, and where everybody in it stands."""

    bundle: Bundle
    standings: tuple[Standing, ...]
    groups: tuple[Group, ...]
    names: Names
    bare_locks: tuple[Lock, ...]
    foreign_listeners: tuple[Listener, ...]
    deaths: tuple[Exit, ...]

    def standing(self, pid: int) -> Standing | None:
        return next((one for one in self.standings if one.pid == pid), None)

    def name(self, pid: int) -> str:
        return self.names.of(pid)

    def waiters_for(self, pids: tuple[int, ...]) -> tuple[int, ...]:
        """Processes that wait for any of `pids`, directly, through others, or because they are ranks in a meeting."""
        reached = set(pids)
        ranks = {one.pid for one in workers(self.standings)} | {gone.id.pid for gone in self.deaths if gone.rank >= 0}
        if reached & ranks:
            reached |= {one.pid for group in self.groups if group.together for one in group.members}
        while True:
            more = {one.pid for one in self.standings if one.pid not in reached and reached & set(one.wait.pids)}
            if not more:
                return tuple(one.pid for one in self.standings if one.pid in reached and one.pid not in pids)
            reached |= more


def scene_of(bundle: Bundle) -> Scene:
    """Read a bundle once."""
    look = last_look(bundle)
    stands = standings(bundle)
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
        deaths=deaths(bundle.exits),
    )


def deaths(exits: tuple[Exit, ...]) -> tuple[Exit, ...]:
    """The exits that a server does not survive, in the order in which they happened.

    A compiler or a short-lived helper comes and goes; where nobody of the server's own is among the dead, an exit
    that was no success counts as well.
    """
    in_order = sorted(exits, key=lambda gone: gone.at)
    own = tuple(gone for gone in in_order if gone.rank >= 0 or gone.role in {Role.FRONT, Role.ENGINE, Role.WORKER})
    if own:
        return own
    return tuple(gone for gone in in_order if gone.role is not Role.COMPILER and not gone.clean)
