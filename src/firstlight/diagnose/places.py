"""Threads by what stands on their stacks. Pure.

Many clues ask, and most stacks of a server are alike: each is read once.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from firstlight.core.gap import Gap
from firstlight.core.look import Frame, NativeFrame, ProcessLook, ThreadLook
from firstlight.diagnose.scene import Scene

Stack: TypeAlias = tuple[Frame | NativeFrame, ...]
Words: TypeAlias = Callable[[Frame | NativeFrame], str]


class Found(NamedTuple):
    """A thread, its stack, and how deep the frame is that was looked for, counted from the innermost."""

    look: ProcessLook
    thread: ThreadLook
    depth: int
    stack: Stack

    @property
    def pid(self) -> int:
        return self.look.process.id.pid

    @property
    def main(self) -> bool:
        return self.thread.tid == self.pid


class _Row(NamedTuple):
    order: int
    look: ProcessLook
    thread: ThreadLook


class _Stacks(NamedTuple):
    """Who has which stack, and the gaps of those that could not be seen, each once."""

    rows: dict[Stack, list[_Row]]
    gaps: tuple[Gap, ...]


def found(scene: Scene, pattern: "re.Pattern[str]", words: Words, *, native: bool = False) -> Iterator[Found | Gap]:
    """Threads with a frame that matches once it is put into `words`, in the order of the look; then the gaps."""
    stacks = _native(scene) if native else _python(scene)
    matching = []
    for stack, rows in stacks.rows.items():
        depth = first(texts(stack, words), pattern)
        if depth is not None:
            matching += [(row, depth, stack) for row in rows]
    for row, depth, stack in sorted(matching, key=lambda one: one[0].order):
        yield Found(row.look, row.thread, depth, stack)
    yield from stacks.gaps


def first(lines: tuple[str, ...], pattern: "re.Pattern[str]") -> int | None:
    """Which of `lines` is the first to match."""
    return next((at for at, line in enumerate(lines) if pattern.search(line)), None)


@lru_cache(maxsize=4096)
def texts(stack: Stack, words: Words) -> tuple[str, ...]:
    """The frames of a stack in words."""
    return tuple(map(words, stack))


@lru_cache(maxsize=1)
def _python(scene: Scene) -> _Stacks:
    return _grouped(scene, lambda thread: thread.stack)


@lru_cache(maxsize=1)
def _native(scene: Scene) -> _Stacks:
    return _grouped(scene, lambda thread: thread.native)


def _grouped(scene: Scene, stack_of: Callable[[ThreadLook], Stack | Gap]) -> _Stacks:
    rows: dict[Stack, list[_Row]] = defaultdict(list)
    gaps: dict[Gap, None] = {}
    everybody = ((one, thread) for one in (scene.last.processes if scene.last else ()) for thread in one.threads)
    for order, (one, thread) in enumerate(everybody):
        stack = stack_of(thread)
        if isinstance(stack, Gap):
            gaps[stack] = None
        else:
            rows[stack].append(_Row(order, one, thread))
    return _Stacks(dict(rows), tuple(gaps))
