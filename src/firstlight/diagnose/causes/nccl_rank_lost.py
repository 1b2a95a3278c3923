"""NCCL's own service has lost ranks of a communicator, often on another machine, where nobody here can look.

It calls a process dead that it could not reach for a minute: it may be gone, stopped, or cut off.
"""

from collections.abc import Iterator

from firstlight.core.collective import Communicator
from firstlight.core.gap import Gap
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.names import numbers
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene


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
        supports("Does NCCL's service report ranks as missing or unresponsive, at both looks?", _silent),
    ),
    advice=Advice(
        confirm=("ncclras -v (port 28028) on each machine; then the first error in that rank's own log.",),
        repair=("See on its machine whether it ended, is stopped or cut off: ps, dmesg, the end of its log.",),
    ),
    traps=("A rank counts within its communicator: rank 3 of a group of four need not be rank 3 of the server.",),
)
