"""Who sleeps, and when the clock will wake them. Pure.

A process sleeps if its main thread does, or if that waits for nothing but what its own process could tell it, and no
other thread of it runs Python: so stands an event loop of asyncio in which everything waits for a timer. A lock, a
queue or a peer that is waited for with a time-out is no sleep: somebody was to come.
"""

from firstlight.core.gap import Gap
from firstlight.core.look import Look, OpenFile, ProcessLook, ThreadLook, TimeLimit

_OWN_EVENTS = "anon_inode:[eventfd]"


def sleeping(look: Look) -> dict[int, TimeLimit]:
    """The processes that sleep, by pid, each with the end of its sleep."""
    limits = {one.process.id.pid: _sleep(one) for one in look.processes}
    return {pid: limit for pid, limit in limits.items() if limit is not None}


def _sleep(look: ProcessLook) -> TimeLimit | None:
    main = next((one for one in look.threads if one.tid == look.process.id.pid), None)
    if main is None or main.limit is None or (main.fds and not _only_wakes_itself(main, look)):
        return None
    return main.limit


def _only_wakes_itself(main: ThreadLook, look: ProcessLook) -> bool:
    waited = [one for one in look.files if one.fd in main.fds]
    alone = all(one is main or one.stack == () for one in look.threads)
    return alone and len(waited) == len(main.fds) and all(_is_own(one, look.process.id.pid) for one in waited)


def _is_own(file: OpenFile, pid: int) -> bool:
    """Whether nobody else can write to what is waited for, as the pair of sockets by which a loop wakes itself."""
    nobody_else = not isinstance(file.peers, Gap) and set(file.peers) == {pid}
    return file.target == _OWN_EVENTS or (nobody_else and file.kind in {"pipe", "socket"})
