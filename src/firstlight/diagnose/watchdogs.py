"""Calls on which torch's watchdog gave up, as its lines in the log tell them: which rank, of which group. Pure."""

import re
from collections import defaultdict
from typing import NamedTuple

from firstlight.core.bundle import Bundle
from firstlight.diagnose.sightings import lines

_CALL = re.compile(
    r"\[Rank (?P<rank>\d{1,6})\] Watchdog caught collective operation timeout: "
    r"Work[NH]CCL\(SeqNum=(?P<call>\d{1,12}), OpType=(?P<operation>\w{1,40})(?:, NumelIn=(?P<elements>\d{1,20}))?"
)
_GROUP = re.compile(
    r"PG GUID (?P<group>\S{1,60}) Rank (?P<rank>\d{1,6})\].{0,120}\bat work(?: sequence id)?: (?P<call>\d{1,12})"
)
_EQUAL_SIZES = re.compile(r"ALLREDUCE|ALLGATHER_BASE|REDUCE_SCATTER_BASE|BROADCAST")


class GivenUp(NamedTuple):
    """A call that timed out. `shape` is its operation, and its elements where all ranks must have as many."""

    rank: int
    call: int
    shape: tuple[str, ...]


def given_up(bundle: Bundle) -> dict[str, tuple[GivenUp, ...]]:
    """The first call of each rank that timed out, by the group's identifier. Older versions of torch number groups
    by process: those cannot be told apart and are left out."""
    shapes: dict[tuple[str, str], tuple[str, ...]] = {}
    groups: dict[tuple[str, str], str] = {}
    for line in lines(bundle):
        if found := _CALL.search(line.message):
            equal = _EQUAL_SIZES.search(found["operation"]) and found["elements"]
            shapes[found["rank"], found["call"]] = (found["operation"], *([found["elements"]] if equal else []))
        if found := _GROUP.search(line.message):
            groups[found["rank"], found["call"]] = found["group"]
    first: dict[str, dict[int, GivenUp]] = defaultdict(dict)
    for (rank, call), group in sorted(groups.items(), key=lambda item: int(item[0][1])):
        first[group].setdefault(int(rank), GivenUp(int(rank), int(call), shapes.get((rank, call), ())))
    return {group: tuple(by_rank.values()) for group, by_rank in first.items()}
