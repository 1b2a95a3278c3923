"""What makes two stalls the same: the phase, and what kind of process waits in what way in which code. Pure.

Left out is whatever differs between two runs of one stall: pids, ports, hosts, folders, lines of a loop, how many
ranks there are and which of them it was this time.
"""

import hashlib
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.graph import Signature
from firstlight.core.look import ThreadLook
from firstlight.core.process import Exit
from firstlight.core.vocabulary import Role
from firstlight.diagnose import frames, waits
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing, stands_in_somebodys_way
from firstlight.diagnose.waits import Kind, Wait, wait_of

FRAMES = 6
WAITS_MAX = 64
DIGEST_CHARACTERS = 12
_PASSING = {Role.HELPER, Role.COMPILER}
"""They come and go, and where they are seen is chance."""


def signature(scene: Scene) -> Signature:
    """The signature of a stall."""
    phase = scene.bundle.phase.value
    lines = sorted({*_waits(scene), *map(_ended, scene.deaths)})
    digest = hashlib.sha256("\n".join([phase, *lines]).encode()).hexdigest()[:DIGEST_CHARACTERS]
    return Signature(digest=digest, phase=phase, waits=tuple(lines[:WAITS_MAX]))


def _waits(scene: Scene) -> Iterator[str]:
    for one in scene.standings:
        if one.look.process.role in _PASSING or one.state in "ZX":
            continue
        yield from (f"{_kind_of(one.look.process.role, one.rank)} {words}" for words in _ways(one))


def _kind_of(role: Role, rank: int) -> str:
    return (Role.WORKER if rank >= 0 else role).value


def _ended(gone: Exit) -> str:
    code = gone.code if isinstance(gone.code, int) else "unseen"
    how = f"signal {gone.signal}" if gone.signal is not None else f"code {code}"
    return f"{_kind_of(gone.role, gone.rank)} ended, {'out of memory' if gone.oom else how}"


def _ways(one: Standing) -> Iterator[str]:
    """How a process waits: by its telling thread, and by every other that is stuck in a way that is seldom seen."""
    if one.stopped:
        yield "stopped"
    elif one.thread is None:
        yield "unseen"
    else:
        yield _way(one.thread, one.wait, spins=one.spins)
        for thread in one.look.threads:
            wait = wait_of(thread, one.look, ())
            if thread is not one.thread and stands_in_somebodys_way(thread, wait):
                yield _way(thread, wait, spins=False)


def _way(thread: ThreadLook, wait: Wait, *, spins: bool) -> str:
    stack = () if isinstance(thread.stack, Gap) else thread.stack
    chain = frames.chain(stack)[:FRAMES]
    places = " < ".join(f"{frames.steady(one.function)} ({frames.steady(frames.basename(one))})" for one in chain)
    return f"{_manner(thread, wait, spins=spins)}{' in ' if places else ''}{places}"


def _manner(thread: ThreadLook, wait: Wait, *, spins: bool) -> str:
    """The kind of wait and of what is waited for. One that polls is caught asleep or awake, which is the same."""
    if waits.polls_lock_file(thread):
        return "polls a lock file"
    if spins or wait.kind is Kind.RUNS:
        return "runs"
    files = sorted({file.kind for file in wait.files}) if wait.kind is not Kind.POLL else []
    return " ".join([wait.kind.value, *files])
