"""Everything that clues look at, worked out once from a bundle. Pure."""

from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from firstlight.core.bundle import Bundle
from firstlight.core.gap import Gap
from firstlight.core.look import Listener, Lock, Look, ProcessLook
from firstlight.core.process import Exit, Process, ProcessId
from firstlight.core.vocabulary import GapReason, Motion, Phase, Role
from firstlight.diagnose.bounded import bounded
from firstlight.diagnose.compare import Difference, together
from firstlight.diagnose.losses import Lost, has_like, losses
from firstlight.diagnose.names import Names
from firstlight.diagnose.queues import awaited
from firstlight.diagnose.ranks import Group, groups, workers
from firstlight.diagnose.standing import Standing, difference, last_look, standings


@dataclass(frozen=True, eq=False)
class Scene:
    """A bundle, and where everybody in it stands; equal only to itself, so that what is made of it can be kept.

    `deaths` are the ends that matter, the cause of the others first; `missed` is false where they only speak for it.
    `alive` leaves out whoever was seen to end. `changes` tells what moved between two looks. `parts` are the machines
    of a merged bundle, each by itself; `over` is the scene that such a part belongs to.
    """

    bundle: Bundle
    changes: Difference | None
    standings: tuple[Standing, ...]
    groups: tuple[Group, ...]
    names: Names
    bare_locks: tuple[Lock, ...]
    foreign_listeners: tuple[Listener, ...]
    ended: tuple[Exit, ...]
    deaths: tuple[Exit, ...]
    missed: bool
    alive: tuple[Process, ...]
    root: ProcessId | None
    parts: tuple["Scene", ...] = ()
    over: "Scene | None" = None

    @cached_property
    def machines(self) -> tuple["Scene", ...]:
        """What there is on each machine, with the facts of that machine; itself where there is but one."""
        return tuple(replace(one, over=self, names=self.names) for one in self.parts) or (self,)

    @property
    def whole(self) -> "Scene":
        """All machines together."""
        return self.over or self

    def standing(self, pid: int) -> Standing | None:
        return self._by_pid.get(pid)

    @property
    def last(self) -> Look | None:
        """The look that counts."""
        return last_look(self.bundle)

    @cached_property
    def _by_pid(self) -> dict[int, Standing]:
        return {one.pid: one for one in reversed(self.standings)}

    @cached_property
    def before(self) -> dict[ProcessId, ProcessLook]:
        """The processes of the first look; none where there are not two."""
        first = self.bundle.looks[0].processes if len(self.bundle.looks) > 1 else ()
        return {one.process.id: one for one in reversed(first)}

    @cached_property
    def gone(self) -> frozenset[int]:
        """Pids of those that ended, unless somebody lives who has the pid now."""
        return frozenset(one.id.pid for one in self.ended) - {one.id.pid for one in self.alive}

    @cached_property
    def queued(self) -> dict[int, tuple[int, ...]]:
        """Whom those wait for who stand at a queue in shared memory, by pid; each machine has its own."""
        if self.parts:
            return {pid: others for part in self.parts for pid, others in part.queued.items()}
        return awaited(self.standings)

    def name(self, pid: int) -> str:
        return self.names.of(pid)

    def is_rank(self, gone: Exit) -> bool:
        """Whether somebody who ended was one of several that do the same work."""
        return gone.rank >= 0 or gone.role is Role.WORKER or has_like(gone, self.alive)

    def waiters_for(self, pids: tuple[int, ...]) -> tuple[int, ...]:
        """Processes that wait for any of `pids`, directly, through others, or because they are ranks in a meeting.

        Helpers are left out: a resource tracker waits for everybody, all its life.
        """
        if self.over:
            return self.over.waiters_for(pids)
        reached = set(pids)
        patient = [one for one in self.standings if one.look.process.role is not Role.HELPER]
        ranks = {one.pid for one in workers(self.standings)}
        ranks |= {gone.id.pid for gone in self.deaths if self.is_rank(gone)}
        if reached & ranks:
            reached |= {one.pid for group in self.groups if group.together for one in group.members}
        queued = self.queued
        while True:
            more = {
                one.pid
                for one in patient
                if one.pid not in reached and reached & {*one.wait.pids, *queued.get(one.pid, ())}
            }
            if not more:
                waiting = (one for one in self.standings if one.pid in reached and one.pid not in pids)
                return tuple(one.pid for one in sorted(waiting, key=lambda one: one.rank))
            reached |= more


def scene_of(bundle: Bundle, root: ProcessId | None = None) -> Scene:
    """Read a bundle once. `root` is the server's first process; without it, it is guessed where a look shows who is
    there."""
    machines = bundle.machines if _are_the_whole(bundle) else ()
    parts = tuple(scene_of(msgspec.structs.replace(one, machines=())) for one in machines)
    bundle = _ranked(bounded(msgspec.structs.replace(bundle, machines=machines)))
    look = last_look(bundle)
    changes = together([one.changes for one in parts]) if parts else difference(bundle)
    stands = tuple(one for part in parts for one in part.standings) or standings(bundle, changes)
    ended = ends(bundle, stands)
    alive = _alive(stands, ended)
    first = root or bundle.root or (parts[0].root if parts else _oldest(bundle, ended))
    lost = _lost(bundle, ended, alive, first)
    locks = look.locks if look and isinstance(look.locks, tuple) else ()
    listeners = look.listeners if look and isinstance(look.listeners, tuple) else ()
    own = {one.pid for one in stands}
    owned_ports = {listener.port for listener in listeners if listener.pid in own}
    return Scene(
        bundle=bundle,
        changes=changes,
        standings=stands,
        groups=groups(stands),
        names=Names(bundle),
        bare_locks=tuple(lock for lock in locks if lock.kind == "file"),
        foreign_listeners=tuple(one for one in listeners if one.pid not in own and one.port not in owned_ports),
        ended=ended,
        deaths=lost.exits,
        missed=lost.missed,
        alive=alive,
        root=first,
        parts=parts,
    )


def _are_the_whole(bundle: Bundle) -> bool:
    """Whether the machines of a bundle tell of the processes that it tells of itself, as they do once merged; a file
    may hold anything."""
    twice = min((len(one.looks) for one in bundle.machines), default=0) > 1
    there = [id_ for one in bundle.machines for id_ in _ids(one)]
    return _ids(bundle) == there and (len(bundle.looks) > 1 or not twice)


def _ids(bundle: Bundle) -> list[ProcessId]:
    look = last_look(bundle)
    return [one.process.id for one in look.processes] if look else []


def ends(bundle: Bundle, standings: tuple[Standing, ...]) -> tuple[Exit, ...]:
    """Every end that was seen, in order; a zombie of which no exit was noted counts, too."""
    noted = {gone.id for gone in bundle.exits}
    zombies = (_exit_of(one, bundle.at) for one in standings if one.state == "Z")
    unnoted = (gone for gone in zombies if gone.id not in noted)
    return tuple(sorted((*bundle.exits, *unnoted), key=lambda gone: gone.at))


def _ranked(bundle: Bundle) -> Bundle:
    """The bundle in which whoever ended before its title was read is the rank as which it wrote; a fork has the title
    of its parent at first."""
    wrote = {line.pid: line for tail in bundle.logs for line in tail.lines if line.pid and line.rank >= 0}
    exits = tuple(
        msgspec.structs.replace(gone, role=Role.WORKER, rank=line.rank, label=line.source)
        if (line := wrote.get(gone.id.pid)) and _may_be_a_rank(gone, bundle)
        else gone
        for gone in bundle.exits
    )
    return bundle if exits == bundle.exits else msgspec.structs.replace(bundle, exits=exits)


def _may_be_a_rank(gone: Exit, bundle: Bundle) -> bool:
    return gone.rank < 0 and gone.role in {Role.OTHER, Role.FRONT} and gone.id != bundle.root


def _alive(standings: tuple[Standing, ...], ended: tuple[Exit, ...]) -> tuple[Process, ...]:
    gone = {one.id for one in ended}
    return tuple(one.look.process for one in standings if one.look.process.id not in gone)


def _oldest(bundle: Bundle, ended: tuple[Exit, ...]) -> ProcessId | None:
    """A server's first process is older than its children. Without a look, only those that ended are known, and the
    oldest of them may be anybody."""
    seen = [one.process.id for look in bundle.looks for one in look.processes]
    known = [*seen, *(gone.id for gone in ended)] if seen else []
    return min(known, key=lambda one: (one.started, one.pid), default=None)


def _lost(bundle: Bundle, ended: tuple[Exit, ...], alive: tuple[Process, ...], root: ProcessId | None) -> Lost:
    """Whose end matters. A server that serves has got over all that ended before, but for a rank that nobody has
    taken the place of."""
    served = min((span.began for span in bundle.timeline if span.phase is Phase.SERVING), default=None)
    if bundle.phase is Phase.SERVING and served is not None:
        there = {one.rank for one in alive if one.rank >= 0}
        short = 0 < len(there) < bundle.ranks
        ended = tuple(
            gone for gone in ended if gone.at >= served or (short and gone.rank >= 0 and gone.rank not in there)
        )
    launched = min((span.began for span in bundle.timeline), default=None)
    lost = losses(ended, root, launched=launched, alive=alive)
    return lost._replace(missed=False) if lost.missed and _is_got_over(bundle, lost.exits[0]) else lost


def _is_got_over(bundle: Bundle, gone: Exit) -> bool:
    """Whether a server goes on regardless of a zombie that a look found in it, and that did none of its work."""
    found = not bundle.run and bool(bundle.looks) and gone.at <= bundle.looks[0].at
    minor = gone.rank < 0 and gone.role not in {Role.FRONT, Role.ENGINE, Role.WORKER}
    return found and minor and (bundle.motion is Motion.MOVING or bundle.phase is Phase.SERVING)


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
