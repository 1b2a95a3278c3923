"""POSIX semaphores in shared memory, who has them, and who waits for them to be posted.

Price: reads. `sem_open` maps a small file /dev/shm/sem.NAME; every lock, queue, barrier and event of multiprocessing
is made of such. multiprocessing unlinks them at once, so most are in no folder and only in memory maps. The value is
the lower half of the first eight bytes (glibc's `struct new_sem`, on machines with 64-bit atomics).
"""

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from firstlight import procfs
from firstlight.clock import Deadline
from firstlight.core.gap import Gap
from firstlight.core.look import ProcessLook, Semaphore
from firstlight.core.vocabulary import GapReason
from firstlight.evidence.workers import Probe

PREFIX = "/dev/shm/sem."
SEMAPHORES_MAX = 512
_DELETED = " (deleted)"

_Mapped: TypeAlias = dict[int, procfs.Mapping]
"""Where each process that has it maps one semaphore, by pid."""


def semaphores(pids: Sequence[int], looks: Sequence[ProcessLook], deadline: Deadline) -> tuple[Semaphore, ...] | Gap:
    """The semaphores that any of `pids` has mapped, those that somebody waits for first; `looks` tell who waits.

    Reads each process's memory map, which a thread stuck in the kernel can hold up, where it can be abandoned. A gap
    only if none of the processes could be read, or no value of those that there are.
    """
    probes = {pid: Probe("semaphores", partial(procfs.mappings, pid, PREFIX), pid) for pid in pids}
    answers = {pid: probe.result(deadline) for pid, probe in probes.items()}
    by_file: dict[tuple[str, int], _Mapped] = defaultdict(dict)
    for pid, mappings in answers.items():
        for mapping in () if isinstance(mappings, Gap) else mappings:
            by_file[mapping.file][pid] = mapping
    gaps = [answer for answer in answers.values() if isinstance(answer, Gap)]
    if gaps and len(gaps) == len(answers):
        return gaps[0]
    waits = {one.process.id.pid: _addresses(one) for one in looks}
    found = [_semaphore(mapped, waits, deadline) for mapped in list(by_file.values())[:SEMAPHORES_MAX]]
    told = [one for one in found if one]
    if found and not told:
        return Gap(what="semaphores", reason=GapReason.TIMED_OUT, detail="their values could not be read in time")
    return tuple(sorted(told, key=lambda one: (not one.waiting, one.path)))


def _addresses(look: ProcessLook) -> tuple[int, ...]:
    return tuple(thread.futex.address for thread in look.threads if thread.futex)


def _semaphore(mapped: _Mapped, waits: Mapping[int, tuple[int, ...]], deadline: Deadline) -> Semaphore | None:
    """The record of one semaphore; None if nobody's memory tells its value."""
    value = next((value for pid, one in mapped.items() if (value := _value(pid, one, deadline)) >= 0), -1)
    if value < 0:
        return None
    paths = sorted(one.path for one in mapped.values())
    waiting = (pid for pid, one in mapped.items() if any(one.begin <= at < one.end for at in waits.get(pid, ())))
    # Whoever made it still maps it under the name that it had before it was linked into place.
    path = next((path for path in paths if not path.endswith(_DELETED)), paths[0])
    return Semaphore(
        path=path.removesuffix(_DELETED), value=value, waiting=tuple(waiting), mapped_by=tuple(sorted(mapped))
    )


def _value(pid: int, mapping: procfs.Mapping, deadline: Deadline) -> int:
    """The value, -1 where it may not be read."""
    data = Probe("a semaphore", partial(procfs.memory, pid, mapping.begin, 8), pid).result(deadline)
    with suppress(struct.error):
        return -1 if isinstance(data, Gap) else int(struct.unpack("=II", data)[0])
    return -1
