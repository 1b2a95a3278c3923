"""Where ranks meet: who is there, and who is missing, by stacks, by flight records, and by NCCL's own word. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.core.collective import CollectiveCall
from firstlight.core.look import Look
from firstlight.diagnose import frames
from firstlight.diagnose.ranks import Group, minority
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import last_look


class Meeting(NamedTuple):
    """A collective, barrier or rendezvous. `present` wait in it, `missing` are awaited; both are pids."""

    name: str
    present: tuple[int, ...]
    missing: tuple[int, ...]


def meetings(scene: Scene) -> tuple[Meeting, ...]:
    """Every meeting in which somebody waits."""
    look = last_look(scene.bundle)
    recorded = (*_recorded(scene, look), *_told_by_nccl(scene, look)) if look else ()
    return (*_by_stacks(scene), *recorded)


def _by_stacks(scene: Scene) -> Iterator[Meeting]:
    waiting = [group for group in scene.groups if group.together and not group.first.stopped]
    missing = [one.pid for one in minority(scene.groups)]
    missing += [one.pid for group in scene.groups if group.first.stopped for one in group.members]
    dead = [gone.id.pid for gone in scene.deaths if scene.is_rank(gone)]
    for group in waiting:
        yield Meeting(_name(group), tuple(one.pid for one in group.members), tuple(dict.fromkeys([*missing, *dead])))


def _name(group: Group) -> str:
    place = group.first.place
    frame = place and (place.operation or place.leaf)
    return f"{frame.function} ({frames.basename(frame)})" if frame else "a collective"


def _recorded(scene: Scene, look: Look) -> Iterator[Meeting]:
    """Process groups in which some ranks have come further than others, by their flight records."""
    if not isinstance(look.collectives, tuple):
        return
    latest: dict[str, dict[int, CollectiveCall]] = defaultdict(dict)
    for call in look.collectives:
        known = latest[call.group].get(call.rank)
        if known is None or call.sequence > known.sequence:
            latest[call.group][call.rank] = call
    for group, by_rank in latest.items():
        first = max(by_rank.values(), key=lambda call: call.sequence)
        ahead = [rank for rank, call in by_rank.items() if call.sequence == first.sequence]
        behind = [rank for rank, call in by_rank.items() if call.sequence < first.sequence]
        if behind and first.state != "completed":
            name = f"{first.operation} number {first.sequence} of group {group}"
            yield Meeting(name, _pids(scene, ahead), _pids(scene, behind))


def _told_by_nccl(scene: Scene, look: Look) -> Iterator[Meeting]:
    """Ranks that NCCL's RAS says are missing, dead or not answering."""
    if not isinstance(look.communicators, tuple):
        return
    for one in look.communicators:
        absent = {*one.missing, *one.dead, *one.unresponsive}
        if absent:
            present = [rank for rank, _ in one.counts if rank not in absent]
            yield Meeting(f"communicator {one.id}", _pids(scene, present), _pids(scene, sorted(absent)))


def _pids(scene: Scene, ranks: list[int]) -> tuple[int, ...]:
    by_rank = {one.rank: one.pid for one in scene.standings if one.rank >= 0}
    by_rank |= {gone.rank: gone.id.pid for gone in scene.deaths if gone.rank >= 0 and gone.rank not in by_rank}
    return tuple(by_rank[rank] for rank in ranks if rank in by_rank)
