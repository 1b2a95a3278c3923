"""Who polls which lock file. filelock opens its file anew for each try, so that mostly nobody but the holder has it
open: the wait is seen on the stack, and the lock only where the kernel knows who holds it. Pure."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.look import Lock
from firstlight.diagnose import waits
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing

DOWNLOAD = re.compile(r"/\.locks?/.*\.lock$|/[0-9a-f]{40,64}[\w.-]*\.lock$")
"""The hub's locks, and those under which SGLang and vLLM resolve a model (in the folder for temporary files)."""
_LOCK_FILE = re.compile(r"(^|/|\.)lock$|/locks/")
_HUB = re.compile(r"/huggingface_hub/|/modelscope/|/transformers/|/model_loader/weight_utils\.py$")
_LOCKS = re.compile(r"/(filelock|portalocker|fasteners|lockfile|oslo_concurrency)/|/_?file_?lock\.py$|/lockfile\.py$")
_INDUCTOR = re.compile(r"/torch/_inductor/")
_COMPILED = re.compile(r"/locks/c[a-z2-7]{51}\.lock$")
"""How torch's inductor calls the locks of what it compiles: by the sha256 of the source, in base 32 (torch 2.13)."""
_TAKES = re.compile(r"acquire|_poll|__enter__|\block$")
_INNER = 6
"""Frames in which filelock is looked for: its own, and those of whoever wraps it."""


class Polled(NamedTuple):
    """A lock that somebody polls. `holder` is 0 if nobody is known to hold it; `sure` is false if it may be another
    one of several."""

    by: Standing
    path: str
    filesystem: str
    holder: int
    sure: bool


def polling(scene: Scene) -> list[Standing]:
    """Whoever sleeps between two tries of a lock file."""
    return [one for one in scene.standings if one.thread and (waits.polls_lock_file(one.thread) or in_filelock(one))]


def in_filelock(one: Standing) -> bool:
    """Whether it takes a lock of the filelock package; between two tries it sleeps, and now and then it is seen in
    one."""
    return any(_LOCKS.search(frame.file) and _TAKES.search(frame.function) for frame in one.stack[:_INNER])


def for_the_hub(one: Standing) -> bool:
    """Whether a model hub's code takes the lock."""
    return any(_HUB.search(frame.file) for frame in one.stack)


def polled(scene: Scene) -> Iterator[Polled]:
    """The locks that are polled: those that a waiter has open, else those that others hold."""
    known = {one.path: one for one in held_locks(scene)}
    for one in polling(scene):
        opened = [file for file in one.look.files if file.kind == "file" and _LOCK_FILE.search(file.target)]
        for file in opened:
            holder = known[file.target].holder if file.target in known else 0
            if holder != one.pid:
                yield Polled(one, file.target, file.filesystem, holder, sure=True)
        if not opened and in_filelock(one):
            yield from _of_others(one, known)


def _of_others(one: Standing, known: dict[str, Lock]) -> Iterator[Polled]:
    others = [lock for lock in known.values() if lock.holder not in {0, one.pid}]
    if for_the_hub(one):
        others = [lock for lock in others if DOWNLOAD.search(lock.path)]
    elif any(_INDUCTOR.search(frame.file) for frame in one.stack):
        others = [lock for lock in others if _COMPILED.search(lock.path)]
    yield from (Polled(one, lock.path, lock.filesystem, lock.holder, sure=len(others) == 1) for lock in others)


def held_locks(scene: Scene) -> tuple[Lock, ...]:
    """Lock files in the kernel's table."""
    look = scene.last
    locks = look.locks if look and not isinstance(look.locks, Gap) else ()
    return tuple(one for one in locks if one.kind != "file" and _LOCK_FILE.search(one.path))
