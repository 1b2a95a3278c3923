"""A process waits for a file: a FIFO without a writer, a lock file left behind, a lock that another holds. Pure."""

from collections.abc import Iterator

from firstlight.core.look import OpenFile
from firstlight.core.report import Finding
from firstlight.diagnose import clauses, quotes, waits
from firstlight.diagnose.quotes import ESTABLISHED, SUPPORTED
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.waits import Kind


def fifo_alone(scene: Scene) -> Iterator[Finding]:
    """Whoever opens a FIFO is held in open until somebody opens its other end: fifo(7)."""
    for one in scene.standings:
        if one.wait.kind not in {Kind.OPEN, Kind.READ, Kind.POLL}:
            continue
        for file in filter(_has_no_other_end, one.wait.files):
            yield Finding(
                id="fifo_without_writer",
                title=f"{scene.name(one.pid)} waits for FIFO {file.target}, and nobody opens its other end",
                verdict=ESTABLISHED,
                pids=(one.pid,),
                evidence=(
                    f"process {one.pid} blocks in {quotes.call(one.thread)}",
                    f"{file.target} is a FIFO (named pipe)",
                    quotes.stack(one),
                ),
                advice=("Put a regular file in its place, or start the program that is to write it.",),
            )


def _has_no_other_end(file: OpenFile) -> bool:
    being_opened = file.fd < 0
    return file.kind == "fifo" and (being_opened or (file.peers == () and not file.unseen))


def stale_lock_file(scene: Scene) -> Iterator[Finding]:
    """A lock file that others poll although nobody works in its folder: whoever made it died without removing it."""
    left = tuple(lock for lock in scene.bare_locks if not lock.holder)
    polling = [one for one in scene.standings if one.thread and waits.polls_lock_file(one.thread)]
    if not left or not polling:
        return
    path = left[0].path
    sure = len(left) == 1 and any(map(_is_in_file_baton, polling))
    verb = "waits" if len(polling) == 1 else "wait"
    yield Finding(
        id="stale_lock_file",
        title=f"{scene.names.all([one.pid for one in polling])} {verb} for the lock file {path}, left behind by a "
        "process that is gone",
        verdict=ESTABLISHED if sure else SUPPORTED,
        pids=tuple(one.pid for one in polling),
        evidence=(clauses.listed_locks(left), *map(quotes.stack, polling[:3])),
        advice=(f"Make sure that no build is running, then: rm {path}",),
    )


def _is_in_file_baton(one: Standing) -> bool:
    return any("baton" in f"{frame.file} {frame.function}".lower() for frame in one.stack)


def file_lock_held(scene: Scene) -> Iterator[Finding]:
    """A flock or record lock that the kernel says another process holds."""
    for one in scene.standings:
        lock = one.wait.lock
        if lock is None or lock.holder in {0, one.pid}:
            continue
        yield Finding(
            id="file_lock_held",
            title=f"{scene.name(one.pid)} waits for the lock on {lock.path}, held by {scene.name(lock.holder)}",
            verdict=ESTABLISHED,
            pids=(one.pid, lock.holder),
            evidence=(
                f"/proc/locks: {lock.kind} lock on {lock.path}, held by {lock.holder}, wanted by {one.pid}",
                quotes.stack(one),
            ),
            advice=(f"See what pid {lock.holder} does; end it if an earlier run left it behind.",),
        )
