"""Who waits for whom at a queue in shared memory: vLLM's and SGLang's `MessageQueue` (shm_broadcast.py). Pure.

Nothing that the kernel knows ties its ends together: a reader spins on a flag, or sleeps in a poll of an eventfd.
What tells is on the stack, and the segment under /dev/shm that its ends have open; where no segment was seen, that
one of them started the other. vLLM's engine core writes to all its workers and reads an answer of each, so it waits
for those that are not back at their queue; a worker that is back waits for the engine core.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice

from firstlight.core.look import Frame
from firstlight.core.vocabulary import Role
from firstlight.diagnose.standing import Standing

ENDS_MAX = 32
"""Other ends that are told of one wait."""
_QUEUE = re.compile(r"/shm_broadcast\.py$")
_CALLS = re.compile(r"(^|\.)(acquire_read|acquire_write|dequeue|enqueue|wait_until_ready)$")
_LOOPS = re.compile(r"(^|\.)\w*busy_loop$")
_SEGMENT = re.compile(r"/dev/shm/(?!sem\.).")
_NO_ENDS = frozenset({Role.HELPER, Role.COMPILER})


class _At(Enum):
    """Where a process stands, as others at its queues see it."""

    HEAD = "gives work to the ranks"
    IDLE = "a rank at its queue, for the next work"
    AMID = "a rank at a queue in the middle of its work"
    AWAY = "a rank that is somewhere else"


_WAITS_FOR: dict[_At | None, tuple[_At, ...]] = {
    _At.HEAD: (_At.AWAY,),
    _At.IDLE: (_At.HEAD,),
    _At.AMID: (_At.AWAY, _At.IDLE),
}
"""A rank in the middle of its work waits for any that does not take part in it."""


def awaited(standings: Iterable[Standing]) -> dict[int, tuple[int, ...]]:
    """By the pid of whoever stands at such a queue, the pids of those at its other ends that it waits for."""
    there = [one for one in standings if one.state not in "ZX" and one.look.process.role not in _NO_ENDS]
    if not any(map(_is_at_queue, there)):
        return {}
    ends = _ends(there)
    found = {one.pid: tuple(islice(_others(one, ends), ENDS_MAX)) for one in there if _is_at_queue(one)}
    return {pid: others for pid, others in found.items() if others}


def _others(one: Standing, ends: dict[str, dict[_At, list[Standing]]]) -> Iterator[int]:
    """Those at the other ends whose turn it is."""
    wanted = _WAITS_FOR.get(_at(one), ())
    told = {one.pid}
    for other in (other for key in _keys(one) for at in wanted for other in ends[key].get(at, ())):
        if other.pid not in told:
            told.add(other.pid)
            yield other.pid


def _ends(there: Iterable[Standing]) -> dict[str, dict[_At, list[Standing]]]:
    """By what ties the ends of queues together, who is where; of heads the engines, where there are any."""
    found: dict[str, dict[_At, list[Standing]]] = defaultdict(lambda: defaultdict(list))
    placed = ((one, at) for one in there if (at := _at(one)))
    for one, at in placed:
        for key in _keys(one):
            found[key][at].append(one)
    for by_place in found.values():
        engines = [one for one in by_place[_At.HEAD] if one.look.process.role is Role.ENGINE]
        by_place[_At.HEAD] = engines or by_place[_At.HEAD]
    return found


def _at(one: Standing) -> _At | None:
    """None for a rank of which nothing is seen that would tell."""
    if not _is_rank(one):
        return _At.HEAD
    if not _is_at_queue(one):
        return _At.AWAY if one.stack or one.stopped or one.frozen else None
    caller = _caller(one)
    return _At.IDLE if caller and _LOOPS.search(caller.function) else _At.AMID


def _is_rank(one: Standing) -> bool:
    return one.rank >= 0 or one.look.process.role is Role.WORKER


def _is_at_queue(one: Standing) -> bool:
    return not (one.stopped or one.frozen) and any(map(_is_of_queue, one.stack))


def _is_of_queue(frame: Frame) -> bool:
    return bool(_QUEUE.search(frame.file) and _CALLS.search(frame.function))


def _caller(one: Standing) -> Frame | None:
    """Who called the queue."""
    outwards = reversed(tuple(enumerate(one.stack)))
    last = next((at for at, frame in outwards if _is_of_queue(frame)), len(one.stack))
    return next(iter(one.stack[last + 1 :]), None)


def _keys(one: Standing) -> list[str]:
    """What ties the ends of a queue together: the segments that they have open, else whoever started the ranks."""
    segments = [file.target for file in one.look.files if _SEGMENT.match(file.target)]
    return list(dict.fromkeys(segments)) or [f"of {one.look.process.ppid if _is_rank(one) else one.pid}"]
