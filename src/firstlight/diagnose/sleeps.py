"""Who sleeps, and when the clock will wake them. Pure.

A process sleeps if its main thread does, or if that waits for its own threads alone and they sleep: in a join, for a
future, or in an event loop that only the process itself could wake. Threads that run none of the program's code (idle
workers of a pool, say) move nothing on and do not count, unless they are all that there is and one sleeps. A lock, a
queue or a peer that is waited for with a time-out is no sleep: somebody was to come.
"""

import re
from itertools import takewhile
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.look import Frame, Look, OpenFile, ProcessLook, ThreadLook, TimeLimit
from firstlight.diagnose import frames

_OWN_EVENTS = "anon_inode:[eventfd]"
_FUTURES = "/concurrent/futures/_base.py"
_POOL = "/concurrent/futures/thread.py"
_JOINS = re.compile(r"(^|\.)(join|_wait_for_tstate_lock|_shutdown)$")
_LOOPS = "epoll"
"""The call in which event loops wait. A poll of one's own pipe is a queue, or a socket, that is waited for."""
_SAME_END_S = 0.01


class Asleep(NamedTuple):
    """The end of a process's sleep. `slept_s` is how long it has slept at least at the second look; None for a main
    thread, since how often that has waited so far tells better."""

    limit: TimeLimit
    slept_s: float | None = None


def sleeping(first: Look, second: Look) -> dict[int, Asleep]:
    """The processes that sleep in the second look, by pid."""
    before = {one.process.id: one for one in first.processes}
    apart_s = second.monotonic - first.monotonic
    found = {one.process.id.pid: _sleep(one, before.get(one.process.id), apart_s) for one in second.processes}
    return {pid: asleep for pid, asleep in found.items() if asleep is not None}


def _sleep(look: ProcessLook, before: ProcessLook | None, apart_s: float) -> Asleep | None:
    main = next((one for one in look.threads if one.tid == look.process.id.pid), None)
    if main is None:
        return None
    if main.limit and not main.fds:
        return Asleep(main.limit)
    looped = _loops(main) and _only_itself_wakes(main, look)
    if not looped and not _awaits_threads(main.stack):
        return None
    threads = [one for one in look.threads if one is not main]
    others = [one for one in threads if _could_move_it_on(one)]
    if not others and not looped:
        others = [one for one in threads if one.limit and not one.fds]
    if others:
        return _of_threads(others, before, apart_s)
    return Asleep(main.limit) if looped and main.limit else None


def _of_threads(threads: list[ThreadLook], before: ProcessLook | None, apart_s: float) -> Asleep | None:
    """The longest of their sleeps, if all of them sleep. One that ends as it did at the first look is the same."""
    sleeps = [(one.limit.seconds, one.tid, one.limit) for one in threads if one.limit and not one.fds]
    if len(sleeps) < len(threads):
        return None
    seconds, tid, limit = max(sleeps, key=lambda sleep: sleep[:2])
    then = next((one.limit for one in before.threads if one.tid == tid), None) if before else None
    same = limit.exact and then is not None and abs(then.seconds - apart_s - seconds) < _SAME_END_S
    return Asleep(limit, apart_s if same else 0.0)


def _awaits_threads(stack: tuple[Frame, ...] | Gap) -> bool:
    """Whether a thread waits for others to end, or to come to a result."""
    inner = () if isinstance(stack, Gap) else takewhile(frames.is_plumbing, stack)
    return any(
        frame.file.endswith(_FUTURES)
        or (frames.basename(frame) == "threading.py" and _JOINS.search(frame.function) is not None)
        for frame in inner
    )


def _could_move_it_on(thread: ThreadLook) -> bool:
    """Whether a thread is at work for the program, or may be, and does not only wait for others itself."""
    if isinstance(thread.stack, Gap):
        return True
    works = any(not frames.is_plumbing(frame) or _is_given_work(frame) for frame in thread.stack)
    return works and not _awaits_threads(thread.stack)


def _is_given_work(frame: Frame) -> bool:
    """A worker of a pool that does something, if only in the standard library."""
    return frame.function.endswith("run") and frame.file.endswith(_POOL)


def _loops(main: ThreadLook) -> bool:
    """Whether a thread waits in an event loop."""
    return bool(main.fds) and not isinstance(main.syscall, Gap) and main.syscall.startswith(_LOOPS)


def _only_itself_wakes(main: ThreadLook, look: ProcessLook) -> bool:
    waited = [one for one in look.files if one.fd in main.fds]
    return len(waited) == len(main.fds) and all(_is_own(one, look.process.id.pid) for one in waited)


def _is_own(file: OpenFile, pid: int) -> bool:
    """Whether nobody else can write to what is waited for, as the pair of sockets by which a loop wakes itself."""
    nobody_else = not isinstance(file.peers, Gap) and set(file.peers) == {pid}
    return file.target == _OWN_EVENTS or (nobody_else and file.kind in {"pipe", "socket"})
