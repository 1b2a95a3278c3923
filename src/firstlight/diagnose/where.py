"""Threads by what is on their stacks, the folders of files included, and what moved between two looks. Pure."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.look import Folder, Frame, NativeFrame, ProcessLook, ThreadLook
from firstlight.diagnose import frames, places
from firstlight.diagnose.clues import Sighting
from firstlight.diagnose.frames import words_of
from firstlight.diagnose.quotes import shortened
from firstlight.diagnose.scene import Scene

QUOTED = 3
"""Frames that one line of evidence shows."""


class At(NamedTuple):
    """A thread, and the frame of its stack that was looked for, counted from the innermost."""

    look: ProcessLook
    thread: ThreadLook
    depth: int
    stack: tuple[Frame | NativeFrame, ...]

    @property
    def pid(self) -> int:
        return self.look.process.id.pid

    @property
    def main(self) -> bool:
        return self.thread.tid == self.pid


def at(scene: Scene, pattern: str, *, native: bool = False) -> Iterator[At | Gap]:
    """Threads with a frame that matches `pattern`, as "function file" with the whole path (native: "function
    library"); the gap of each stack that could not be seen."""
    for there in places.found(scene, re.compile(pattern), _full, native=native):
        yield there if isinstance(there, Gap) else At(*there)


def _full(frame: Frame | NativeFrame) -> str:
    return f"{frame.function} {frame.library if isinstance(frame, NativeFrame) else frame.file}"


def shown(scene: Scene, there: At) -> Sighting:
    """Where a thread stands, from the frame that was looked for outwards, with the innermost before it."""
    inner = [there.stack[0]] if there.depth else []
    stack = [*inner, *there.stack[there.depth : there.depth + QUOTED]]
    return Sighting(
        shortened(f"{scene.name(there.pid)}: {' < '.join(filter(None, map(words_of, stack)))}"), (there.pid,)
    )


def stands(scene: Scene, pattern: str, *, native: bool = False) -> Iterator[Sighting | Gap]:
    """As `at`, quoted."""
    for there in at(scene, pattern, native=native):
        yield there if isinstance(there, Gap) else shown(scene, there)


def main_place(there: ProcessLook) -> frames.Place | None:
    """Where the main thread of a process stands."""
    main = next((one for one in there.threads if one.tid == there.process.id.pid), None)
    return frames.place(main.stack) if main and not isinstance(main.stack, Gap) else None


def seconds_between(scene: Scene) -> float:
    """From the first look to the last; 0 where there are not two."""
    changes = scene.changes
    return changes.seconds if changes else 0.0


def moving(scene: Scene) -> Iterator[Sighting]:
    """Processes that did something between the looks."""
    for one in scene.standings:
        if one.moves and one.change:
            yield Sighting(shortened(f"{scene.name(one.pid)} {one.change.why}"), (one.pid,))


def grown(scene: Scene, *purposes: str) -> Iterator[tuple[Folder, int]]:
    """Folders of these purposes that grew or changed between the looks, and by how many bytes."""
    looks = scene.bundle.looks
    if len(looks) < 2:
        return
    before = {one.path: one for one in looks[0].folders}
    for one in looks[-1].folders:
        old = before.get(one.path)
        if one.purpose in purposes and old and (one.bytes > old.bytes or one.newest > old.newest):
            yield one, one.bytes - old.bytes


def before(scene: Scene, pid: int) -> ProcessLook | None:
    """The same process at the first look."""
    now = scene.standing(pid)
    return scene.before.get(now.look.process.id) if now else None
