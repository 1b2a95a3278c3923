"""Ranks with equal stacks, grouped: the majority is the crime scene, the minority the suspect. Pure."""

import re
from collections import defaultdict
from typing import NamedTuple

from firstlight.core.vocabulary import Role
from firstlight.diagnose import frames
from firstlight.diagnose.losses import like
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.waits import Kind

_MEETING = re.compile(
    r"(^|[._])(monitored_)?(barrier|all_?reduce\w*|all_?gather\w*|reduce_scatter\w*|all_?to_?all\w*|broadcast\w*|bcast\w*"
    r"|init_process_group|new_group|\w*rendezvous\w*|store_based_barrier)($|\.)",
    re.IGNORECASE,
)
_MEETING_IN_LIBRARIES = re.compile(
    r"\b(nccl|rccl|hccl|oneccl|P?MPI_|gloo::|nvshmemx?_)\w*?(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"
    r"|broadcast|bcast|barrier|CommInit)",
    re.IGNORECASE,
)
"""Of servers that are not written in Python, or whose Python does not show."""
_MEETING_IN_CODE = re.compile(
    r"\b\w*comm\w*(\(\))?\.I?(all_?reduce|all_?gatherv?|bcast|barrier|all_?to_?allv?|reduce_scatter\w*)\(",
    re.IGNORECASE,
)
"""Bindings of MPI leave no frame of their own; the line that calls them names them."""
_MEETING_PLACES = re.compile(
    r"/torch/distributed/|/deep_ep/|/(pynccl|parallel_state|shm_broadcast|custom_all_reduce|communication_op)\w*\.py$"
    r"|/firstlight/embedded/worker/meeting\.py$"
)


class Group(NamedTuple):
    """Ranks that stand in the same place."""

    members: tuple[Standing, ...]

    @property
    def first(self) -> Standing:
        return self.members[0]

    @property
    def together(self) -> bool:
        """Whether they wait where ranks meet: a barrier, a collective, a rendezvous."""
        return meets_others(self.first)


def meets_others(standing: Standing) -> bool:
    """Whether a process waits in something that needs the other ranks."""
    python = standing.stack
    if not python:
        return any(map(_MEETING_IN_LIBRARIES.search, standing.words))
    return meets_in_code(standing) or any(
        _MEETING.search(frame.function) or _MEETING_PLACES.search(frame.file) for frame in python
    )


def meets_in_code(standing: Standing) -> bool:
    """Whether its innermost line of Python calls what needs the other ranks, and that has no frame."""
    return bool(standing.stack and _MEETING_IN_CODE.search(standing.stack[0].code))


def workers(standings: tuple[Standing, ...]) -> tuple[Standing, ...]:
    """The processes that should be alike: those with a rank, else the workers, else like-named children."""
    ranked = tuple(one for one in standings if one.rank >= 0)
    if ranked:
        return ranked
    working = tuple(one for one in standings if one.look.process.role is Role.WORKER)
    if working:
        return working
    siblings: dict[tuple[int, str], list[Standing]] = defaultdict(list)
    for one in standings:
        if one.look.process.role is Role.HELPER:
            continue
        siblings[one.look.process.ppid, like(one.look.process.name)].append(one)
    return tuple(sorted(siblings.values(), key=len)[-1]) if siblings else ()


def groups(standings: tuple[Standing, ...]) -> tuple[Group, ...]:
    """Workers by where they stand, the largest group first; none if there are not at least two workers."""
    alike = workers(standings)
    if len(alike) < 2:
        return ()
    by_place: dict[object, list[Standing]] = defaultdict(list)
    for one in alike:
        by_place[_key(one)].append(one)
    found = [Group(tuple(members)) for members in by_place.values()]
    return tuple(sorted(found, key=lambda group: (-len(group.members), not group.together)))


def _key(standing: Standing) -> object:
    if standing.stopped:
        return "stopped"
    if standing.stack:
        return frames.gathering(standing.stack)
    return standing.wait.kind, standing.wait.call


def minority(found: tuple[Group, ...]) -> tuple[Standing, ...]:
    """The ranks that are not where the others wait for them; none where that cannot be told."""
    waiting = [group for group in found if group.together and not group.first.stopped]
    elsewhere = [one for group in found if group not in waiting for one in group.members if one.state not in "ZX"]
    if not waiting or not elsewhere:
        return ()
    met = sum(len(group.members) for group in waiting)
    # One rank each: the one that waits where ranks meet waits for the other.
    return tuple(elsewhere) if met >= len(elsewhere) else ()


def is_idle(standing: Standing) -> bool:
    """A wait that a healthy front or helper spends its life in."""
    return standing.wait.kind in {Kind.POLL, Kind.ACCEPT, Kind.FUTEX} and not meets_others(standing)
