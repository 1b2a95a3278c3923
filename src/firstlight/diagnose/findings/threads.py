"""Threads of one process in each other's way: locks taken in opposite order, the interpreter lock, a spin. Pure."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import ThreadLook
from firstlight.core.report import Finding
from firstlight.diagnose import frames, quotes, waits
from firstlight.diagnose.quotes import SUPPORTED
from firstlight.diagnose.ranks import meets_others
from firstlight.diagnose.scene import Scene


def lock_inversion(scene: Scene) -> Iterator[Finding]:
    """Two or more threads of one process, each stuck taking another Python lock. Python keeps no record of who holds
    one, so the stacks speak for it, and prove it only together with the program's text."""
    for one in scene.standings:
        taking = [thread for thread in one.look.threads if waits.acquires_lock(thread)]
        if len({_futex(thread) for thread in taking}) < 2:
            continue
        yield Finding(
            id="lock_inversion",
            title=f"{len(taking)} threads of {scene.name(one.pid)} wait for each other's locks",
            verdict=SUPPORTED,
            pids=(one.pid,),
            evidence=tuple(_thread(thread) for thread in taking[:6]),
            advice=("Take the locks in the same order in every thread, or take them with a timeout.",),
        )


def _futex(thread: ThreadLook) -> str:
    return quotes.call(thread).partition(",")[0]


def _thread(thread: ThreadLook) -> str:
    stack = () if isinstance(thread.stack, Gap) else frames.telling(thread.stack)
    return quotes.chain(f"thread {thread.tid} ({thread.name}): ", stack[:4])


def holds_the_gil(scene: Scene) -> Iterator[Finding]:
    """A thread that blocks in the kernel while it holds the interpreter lock stops every other thread."""
    for one in scene.standings:
        for thread in filter(_blocks_with_gil, one.look.threads):
            yield Finding(
                id="gil_held",
                title=f"a thread of {scene.name(one.pid)} blocks while it holds the interpreter lock (GIL)",
                verdict=SUPPORTED,
                pids=(one.pid,),
                evidence=(
                    _thread(thread),
                    f"thread {thread.tid} sits in {quotes.call(thread)}, state {thread.state}",
                ),
                advice=(_release(thread, one.pid),),
            )


def _release(thread: ThreadLook, pid: int) -> str:
    if isinstance(thread.stack, Gap) or not thread.stack:
        return f"Find the code that waits with the interpreter lock (GIL): py-spy dump --native --pid {pid}"
    leaf = thread.stack[0]
    package = frames.package(leaf)
    place = f"{frames.shown(leaf)}{f' of {package}' if package else ''}"
    return (
        f"The native code called in {place} waits without releasing the interpreter lock (GIL); report it to the "
        f"authors of {package or 'that file'}."
    )


def _blocks_with_gil(thread: ThreadLook) -> bool:
    return thread.owns_gil and not thread.active and thread.state in "SD"


_BUSY_WAIT = re.compile(
    r"\b(while|pass|continue|wait|poll|spin|yield|sleep|is_set|ready|done|barrier)\b", re.IGNORECASE
)


def spinning(scene: Scene) -> Iterator[Finding]:
    """A process that burns CPU in one place, in code that reads like waiting, or after a peer has gone."""
    for one in scene.standings:
        if not one.spins:
            continue
        inner = " ".join(f"{frame.function} {frame.code}" for frame in one.stack[:3]).replace("_", " ")
        if not (scene.deaths or meets_others(one) or _BUSY_WAIT.search(inner)):
            continue
        cpu = f"process {one.pid} {one.change.why}" if one.change else ""
        yield Finding(
            id="busy_wait",
            title=f"{scene.name(one.pid)} spins: it waits and burns CPU",
            verdict=SUPPORTED,
            pids=(one.pid,),
            evidence=(cpu, quotes.stack(one)),
            advice=("See what it waits for: a peer that is gone, or a flag that nobody sets.",),
        )
