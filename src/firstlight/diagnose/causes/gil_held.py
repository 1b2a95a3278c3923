"""A thread that blocks in the kernel while it holds the interpreter lock stops every other thread."""

from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import ThreadLook
from firstlight.diagnose import frames, quotes
from firstlight.diagnose.clues import Advice, Cause, Nature, Sighting, supports
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.sightings import unseen_stacks


def _held(scene: Scene) -> Iterator[Sighting | Gap]:
    for one in scene.standings:
        for thread in filter(blocks_with_gil, one.look.threads):
            stack = () if isinstance(thread.stack, Gap) else frames.telling(thread.stack)
            yield Sighting(quotes.chain(quotes.thread(thread), stack[:4]), (one.pid,), _place(thread))
            sits = f"thread {thread.tid} sits in {quotes.call(thread)}, state {thread.state}"
            yield Sighting(quotes.shortened(sits), (one.pid,))
    yield from unseen_stacks(scene)


def blocks_with_gil(thread: ThreadLook) -> bool:
    """Whether a thread blocks while it holds the interpreter lock."""
    return thread.owns_gil and not thread.active and thread.state in "SD"


def _place(thread: ThreadLook) -> str:
    """Whose code it is: "load (load.py:88) of slowlib", empty if no stack was seen."""
    if isinstance(thread.stack, Gap) or not thread.stack:
        return ""
    package = frames.package(thread.stack[0])
    return f"{frames.shown(thread.stack[0])}{f' of {package}' if package else ''}"


def _advice(_scene: Scene, seen: tuple[Sighting, ...]) -> Advice:
    if not seen[0].what:
        return Advice(
            steps=("Find the code that waits with the interpreter lock (GIL): py-spy dump --native --pid {pid}",)
        )
    package = seen[0].what.rpartition(" of ")[2] if " of " in seen[0].what else "that file"
    waits = "The native code called in {what} waits without releasing the interpreter lock (GIL)"
    return Advice(steps=(f"{waits}; report it to the authors of {package}.",))


CAUSE = Cause(
    id="gil_held",
    nature=Nature.DETAIL,
    title="a thread of {who} blocks while it holds the interpreter lock (GIL)",
    clues=(supports("Does a thread block while it holds the interpreter lock?", _held),),
    advice=_advice,
    traps=("It says which thread keeps the others from running, not why that one waits.",),
    each=True,
)
