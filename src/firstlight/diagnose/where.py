"""Threads by what is on their stacks, the folders of files included, and what moved between two looks. Pure."""

import re
from collections.abc import Iterator

from firstlight.core.gap import Gap
from firstlight.core.look import Folder, Frame, NativeFrame, ProcessLook
from firstlight.diagnose import frames, places
from firstlight.diagnose.clues import Sighting
from firstlight.diagnose.frames import words_of
from firstlight.diagnose.places import Found
from firstlight.diagnose.quotes import QUOTED_FRAMES, shortened
from firstlight.diagnose.scene import Scene


def at(scene: Scene, pattern: str, *, native: bool = False) -> Iterator[Found | Gap]:
    """Threads with a frame that matches `pattern`, as "function file" with the whole path (native: "function
    library"); the gap of each stack that could not be seen."""
    yield from places.found(scene, re.compile(pattern), _full, native=native)


def _full(frame: Frame | NativeFrame) -> str:
    return f"{frame.function} {frame.library if isinstance(frame, NativeFrame) else frame.file}"


def shown(scene: Scene, there: Found) -> Sighting:
    """Where a thread stands, from the frame that was looked for outwards, with the innermost before it."""
    inner = [there.stack[0]] if there.depth else []
    stack = [*inner, *there.stack[there.depth : there.depth + QUOTED_FRAMES]]
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
