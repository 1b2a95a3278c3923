"""One of several processes that do the same work has ended, and the others wait for it."""

import re
from collections.abc import Iterator

from firstlight.core.vocabulary import Phase
from firstlight.diagnose import deaths, network, quotes
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, decides, supports
from firstlight.diagnose.devices import is_hidden, still
from firstlight.diagnose.ranks import minority, workers
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import lines

FAILED_WITHIN = "its work"
_UNCAUGHT = re.compile(
    r"Exception in thread|hit an exception|exception (was )?never retrieved|uncaught exception", re.I
)
_LAUNCHER_TELLS = re.compile(
    r"process rank (\d{1,6}) with PID \d+ on node \S+ exited"
    r"|srun: error: \S+: tasks? (\d{1,6}): (?:Out Of Memory|Killed|Segmentation|Aborted|Bus error|Exited)"
    r"|failed \(exitcode: -?\d+\) local_rank: (\d{1,6})"
)


_RAY_TELLS = re.compile(
    r"(?=.*(worker\(s\) were killed due to|worker died unexpectedly|ActorDiedError|node \S* ?(was|is) (lost|dead)))"
    r".*\b(?:ip|IP)[=:] ?(?P<host>\d{1,3}(?:\.\d{1,3}){3})"
)


def _missed(scene: Scene) -> Iterator[Sighting]:
    """The first of the ends that matter is that of a rank."""
    if scene.missed and scene.is_rank(scene.deaths[0]):
        yield from deaths.the_end(scene)


def _absent(scene: Scene) -> Iterator[Sighting]:
    """There are fewer ranks on this machine than it should have, and those that are there wait where ranks meet: one
    ended before anybody looked, or never started."""
    living = [one.rank for one in workers(scene.standings) if one.rank >= 0 and one.state not in "ZX"]
    there, wanted = set(living), scene.bundle.ranks
    waits = [group for group in scene.groups if group.together]
    missing = [one for one in range(wanted) if one not in there]
    copies = len(there) < len(living) or max(there, default=wanted) >= wanted
    if scene.missed or scene.bundle.nodes > 1 or copies or not missing or _elsewhere(there, missing):
        return
    unseen = sum(is_hidden(scene, one) for one in workers(scene.standings))
    if waits and sum(len(group.members) for group in waits) + unseen == len(there):
        gone = ", ".join(map(str, missing))
        pids = tuple(one.pid for group in waits for one in group.members)
        yield Sighting(f"{len(there)} of {wanted} ranks are there, and none has the number {gone}", pids, gone)
        yield Sighting(quotes.stack(waits[0].first), pids[:1])


def _absent_unseen(scene: Scene) -> Iterator[Sighting]:
    """The same where no stack may be taken: a number is missing amid those that are there, and none of them moves."""
    living = [one for one in workers(scene.standings) if one.rank >= 0 and one.state not in "ZX"]
    there, wanted = {one.rank for one in living}, scene.bundle.ranks
    missing = [one for one in range(wanted) if one not in there]
    hidden = (
        bool(living)
        and all(is_hidden(scene, one) for one in living)
        and still(scene)
        and scene.whole.changes is not None
    )
    starts = scene.bundle.phase in {Phase.SPAWN, Phase.IMPORT, Phase.CONFIG}
    alone = scene.bundle.nodes == 1 and len(there) == len(living) and max(there, default=wanted) < wanted
    if hidden and alone and missing and not scene.missed and not starts and not _elsewhere(there, missing):
        gone = ", ".join(map(str, missing))
        pids = tuple(one.pid for one in living)
        yield Sighting(
            f"{len(there)} of {wanted} ranks are there, none moves, and none has the number {gone}", pids, gone
        )


def _failed_within(scene: Scene) -> Iterator[Sighting]:
    """A rank told of an error that nobody caught in it, and is not where the others wait: the process lives, and what
    did its work does not."""
    away = {one.rank: one for one in minority(scene.groups) if one.rank >= 0 and not one.moves}
    for line in lines(scene.bundle):
        if not scene.missed and line.rank in away and _UNCAUGHT.search(line.message):
            there = away[line.rank]
            yield Sighting(
                quotes.shortened(f"log of {scene.name(there.pid)}: {line.message}"), (there.pid,), FAILED_WITHIN
            )
            yield Sighting(quotes.stack(there), (there.pid,))


def _launcher_tells(scene: Scene) -> Iterator[Sighting]:
    """mpirun, srun or torchrun tells of the end of a rank that is not here, and those here wait where ranks meet."""
    there = {one.rank for one in workers(scene.standings) if one.rank >= 0 and one.state not in "ZX"}
    waits = [group for group in scene.groups if group.together]
    if scene.missed or not there or sum(len(group.members) for group in waits) != len(there):
        return
    for line in lines(scene.bundle):
        found = _LAUNCHER_TELLS.search(line.message)
        number = next(filter(None, found.groups()), "") if found else ""
        if number and int(number) not in there:
            yield Sighting(quotes.shortened(f"log: {line.message}"), what=number)


def _ray_tells(scene: Scene) -> Iterator[Sighting]:
    """Ray tells that it has killed a worker of another machine for want of memory, or that its node is lost, and
    nobody here moves."""
    if scene.missed or not scene.standings or any(one.moves for one in scene.standings if one.rank >= 0):
        return
    for line in lines(scene.bundle):
        found = _RAY_TELLS.search(line.message)
        if found and not network.is_own(scene, found["host"]):
            yield Sighting(quotes.shortened(f"log: {line.message}"), what=found["host"])


def _elsewhere(there: set[int], missing: list[int]) -> bool:
    """Whether the missing ones may be those of other machines, as with Ray: all of the higher numbers, and many."""
    return min(missing) > max(there) and len(missing) >= len(there)


def _title(scene: Scene, seen: tuple[Sighting, ...]) -> str:
    if scene.missed:
        return deaths.title(scene, seen)
    if any(one.what == FAILED_WITHIN for one in seen):
        return "{who} failed and did not end, and the others wait for it"
    if any("." in one.what for one in seen):
        return "a worker on {what} has ended, and those here wait for it"
    return "rank {what} is not there, and the others wait for it"


def _advice(scene: Scene, seen: tuple[Sighting, ...]) -> Advice:
    if scene.missed:
        return deaths.advice(scene, seen)
    if any(one.what == FAILED_WITHIN for one in seen):
        return Advice(
            steps=("Read the whole error in the log of {who}; end the server, since nobody does its work now.",)
        )
    return Advice(steps=("Read that rank's own log from the start, and the kernel's (dmesg) for its end.",))


CAUSE = Cause(
    id="rank_died",
    nature=Nature.DEATH,
    together=True,
    title=_title,
    clues=(
        decides("Did a rank end, before anybody else that is missed?", _missed),
        supports("Did a rank fail without an end, and do the others wait for it?", _failed_within),
        supports("Does a launcher tell of the end of a rank, for which those here wait?", _launcher_tells),
        supports("Does Ray tell of the end of a worker of another machine, and does nobody move?", _ray_tells),
        supports("Is a rank not there for which the others wait?", _absent),
        supports("Is a rank not there, with the others unmoved and out of sight?", _absent_unseen),
    ),
    advice=_advice,
    traps=("What other ranks print afterwards, a lost connection or a timeout, follows from the first end.",),
)
