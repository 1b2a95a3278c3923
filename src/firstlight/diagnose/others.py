"""The further threads of a process that tell something, such as the other half of a deadlock. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from firstlight.core.gap import Gap
from firstlight.core.look import ThreadLook
from firstlight.core.report import Finding, ReportedThread
from firstlight.core.words import printable
from firstlight.diagnose import clauses, frames, waits
from firstlight.diagnose.links import links
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing, stands_in_somebodys_way
from firstlight.diagnose.waits import Kind

OTHERS_MAX = 4
FRAMES_MAX = 3
_NAME_MAX = 40


def others(scene: Scene, findings: Iterable[Finding]) -> dict[int, tuple[ReportedThread, ...]]:
    """By pid, for the processes that findings or the waiting are about."""
    ends = [end for link in links(scene) for end in (link.source, link.target)]
    pids = {pid for finding in findings for pid in finding.pids} | {end.pid for end in ends}
    tids = {end.tid for end in ends}
    there = ((place, one) for place in scene.machines for one in place.standings)
    return {one.pid: _of(one, place, tids) for place, one in there if one.pid in pids and not one.stopped}


def _of(one: Standing, scene: Scene, linked: Collection[int]) -> tuple[ReportedThread, ...]:
    look = scene.last
    locks = look.locks if look and isinstance(look.locks, tuple) else ()
    there = [
        replace(
            one,
            thread=thread,
            wait=waits.wait_of(thread, one.look, locks),
            place=None if isinstance(thread.stack, Gap) else frames.place(thread.stack),
            change=None,
        )
        for thread in one.look.threads
        if thread is not one.thread
    ]
    ranked = ((_rank(thread, other, linked), other, thread) for other in there if (thread := other.thread))
    telling = sorted((row for row in ranked if row[0] is not None), key=lambda row: row[0] or 0)
    return tuple(
        ReportedThread(
            tid=thread.tid,
            name=printable(thread.name, _NAME_MAX),
            doing=clauses.doing(other, scene.names, scene.bare_locks),
            where=other.place.frames[:FRAMES_MAX] if other.place else (),
        )
        for _, other, thread in telling[:OTHERS_MAX]
    )


def _rank(thread: ThreadLook, one: Standing, linked: Collection[int]) -> int | None:
    """Small for a thread that tells much; None for one that tells nothing."""
    if thread.tid in linked or (thread.owns_gil and not thread.active):
        return 0
    if stands_in_somebodys_way(thread, one.wait):
        return 1
    own = one.place is not None and one.place.caller is not None
    return 2 if own and one.wait.kind in {Kind.READ, Kind.CONNECT} else None
