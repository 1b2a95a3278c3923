"""A process waits for a pipe or socket that nobody fills, or that nobody empties. Pure."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import OpenFile
from firstlight.core.process import Exit
from firstlight.core.report import Finding
from firstlight.core.vocabulary import Role
from firstlight.core.words import exit_words
from firstlight.diagnose import quotes
from firstlight.diagnose.names import of_exit
from firstlight.diagnose.quotes import ESTABLISHED, SUPPORTED
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing
from firstlight.diagnose.waits import Kind

ENDED_TOLD = 4
_BUILDERS = {Role.COMPILER, Role.HELPER}


def dead_peer(scene: Scene) -> Iterator[Finding]:
    """Reading where nobody else holds the other end: the kernel reports an end only when the last holder closes it,
    and here the reader itself, or nobody who could be seen, holds the writing end."""
    for one in scene.standings:
        files = one.wait.files
        if not _reads_for_good(one) or not files or not all(_is_left_alone(file, one.pid) for file in files):
            continue
        others_could_write = one.look.sample.threads > 1 or any(file.unseen for file in files)
        yield Finding(
            id="dead_pipe_peer",
            title=f"{scene.name(one.pid)} waits for data that nobody is left to send",
            verdict=SUPPORTED if others_could_write else ESTABLISHED,
            pids=(one.pid,),
            evidence=(
                f"process {one.pid} blocks in {quotes.call(one.thread)}",
                *(_other_end(file) for file in files[:4]),
                quotes.stack(one),
                *(f"ended before: {of_exit(gone)} {exit_words(gone)}" for gone in _may_have_been_it(scene)),
            ),
            advice=("Find the process that was to send: it has ended, or was never given its end.",),
        )


def _may_have_been_it(scene: Scene) -> tuple[Exit, ...]:
    """Whoever ended and may have held the other end: those that are missed, then the last to end."""
    others = (gone for gone in reversed(scene.ended) if gone not in scene.deaths and gone.role not in _BUILDERS)
    return (*scene.deaths, *others)[:ENDED_TOLD]


def _reads_for_good(one: Standing) -> bool:
    """A plain read, or a poll for one connection; event loops poll a socket of their own to be woken."""
    if one.wait.kind is Kind.READ:
        return True
    return one.wait.kind is Kind.POLL and any("multiprocessing/connection" in frame.file for frame in one.stack)


def _is_left_alone(file: OpenFile, pid: int) -> bool:
    if file.kind not in {"pipe", "socket"} or isinstance(file.peers, Gap):
        return False
    return all(peer == pid for peer in file.peers)


def _other_end(file: OpenFile) -> str:
    holder = "this process alone" if file.peers else "nobody"
    limit = f", as far as could be seen ({file.unseen} could not be searched)" if file.unseen else ""
    return f"the other end of descriptor {file.fd} ({file.target}) is held by {holder}{limit}"


def full(scene: Scene) -> Iterator[Finding]:
    """Writing blocks, or putting into a bounded queue: whoever is to take it does not."""
    for one in scene.standings:
        files = [file for file in one.wait.files if file.kind in {"pipe", "fifo", "socket"}]
        blocked = one.wait.kind is Kind.WRITE and files
        if not blocked and not _puts(one):
            continue
        readers = f"; {scene.names.all(one.wait.pids)} should read it" if one.wait.pids else ""
        what = "pipe" if blocked else "queue"
        yield Finding(
            id="queue_full",
            title=f"{scene.name(one.pid)} waits for room in a {what} that nobody empties{readers}",
            verdict=SUPPORTED,
            pids=(one.pid, *one.wait.pids),
            evidence=(f"process {one.pid} blocks in {quotes.call(one.thread)}", quotes.stack(one)),
            advice=("See what the reading side does: it is the one that is stuck, or it never started to read.",),
        )


def _puts(one: Standing) -> bool:
    operation = one.place.operation if one.place else None
    in_queue = operation is not None and re.search(r"(^|\.)put$", operation.function) is not None
    return in_queue and one.wait.kind is Kind.FUTEX
