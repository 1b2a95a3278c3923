"""Ranks of a communicator are lost, often on another machine, where nobody here can look: NCCL's own service says so,
or connections to them broke.

The service calls a process dead that it could not reach for a minute: it may be gone, stopped, or cut off.
"""

from collections.abc import Iterator
from itertools import chain

from firstlight.core.collective import Communicator
from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.devices import COLLECTIVE, COMMUNICATOR, complete, some_in, unseen_and_still
from firstlight.diagnose.names import numbers
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import both, said

_BROKEN = (
    r"(socket|NCCL|gloo|c10d|hccl).*(connection (was )?(closed|reset) by (remote )?peer)|ncclRemoteError"
    r"|failed to pass monitoredBarrier|while waiting for send/recv from rank"
)


def _dead(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks count as dead at both looks."""
    for one in _lasting(scene):
        if isinstance(one, Gap):
            yield one
        elif one.dead:
            yield _told(one, one.dead, "dead")


def _silent(scene: Scene) -> Iterator[Sighting | Gap]:
    """Ranks are missing or do not answer, at both looks."""
    for one in _lasting(scene):
        if isinstance(one, Gap):
            yield one
        elif silent := tuple(rank for rank in (*one.missing, *one.unresponsive) if rank not in one.dead):
            yield _told(one, silent, "missing or unresponsive")


def _broken(scene: Scene) -> Iterator[Sighting | Gap]:
    """The connection to a rank of another machine has ended, nobody here has, and ranks still wait."""
    if scene.bundle.nodes > 1 and complete(scene):
        told = (one._replace(what="a rank of another machine") for one in said(scene, _BROKEN))
        yield from both(told, chain(some_in(scene, f"{COLLECTIVE}|{COMMUNICATOR}"), unseen_and_still(scene)))


def _lasting(scene: Scene) -> Iterator[Communicator | Gap]:
    """Communicators that report the same at the first and the last of two or more looks."""
    looks = scene.bundle.looks
    if len(looks) < 2:
        return
    before, now = looks[0].communicators, looks[-1].communicators
    if isinstance(before, Gap) or isinstance(now, Gap):
        yield from (one for one in (before, now) if isinstance(one, Gap))
        return
    yield from (one for one in now if any(one.id == old.id and _lost(one) == _lost(old) for old in before))


def _lost(one: Communicator) -> tuple[tuple[int, ...], ...]:
    return one.dead, one.missing, one.unresponsive


def _told(one: Communicator, ranks: tuple[int, ...], how: str) -> Sighting:
    which = numbers(ranks)
    words = f"NCCL's service (RAS): {which} of the {one.ranks} of communicator {one.id} are {how}, at both looks"
    return Sighting(shortened(words), what=which)


CAUSE = Cause(
    id="nccl_rank_lost",
    nature=Nature.NETWORK,
    together=True,
    title="NCCL cannot reach {what}, for which the others wait",
    clues=(
        supports("Does NCCL's service count ranks as dead, at both looks?", _dead),
        supports("Did a connection to another machine break, while ranks wait and nobody here ended?", _broken),
        supports("Does NCCL's service report ranks as missing or unresponsive, at both looks?", _silent),
    ),
    advice=Advice(
        confirm=("ncclras -v (port 28028) on each machine; then the first error in that rank's own log.",),
        repair=("See on its machine whether it ended, is stopped or cut off: ps, dmesg, the end of its log.",),
    ),
    traps=("A rank counts within its communicator: rank 3 of a group of four need not be rank 3 of the server.",),
)
