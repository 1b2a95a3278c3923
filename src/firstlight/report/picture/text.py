"""The wait-for graph as lines of text: deadlocks as loops, then who waits for whom as a tree.

The tree starts where the waiting ends, since that is what one looks for: under each stands who waits for it.
"""

from collections import defaultdict
from collections.abc import Iterator
from textwrap import wrap

from firstlight.core.graph import WaitGraph
from firstlight.report.picture.drawing import Arrow, Box, Drawing, drawing, left_out_words

BOXES_MAX = 60
DEPTH_MAX = 24
ROOM_MIN = 30
"""Columns that words have at least, however deep they stand."""


def lines(graph: WaitGraph, width: int = 120) -> list[str]:
    """The graph in words and arrows, wrapped to about `width` columns; nothing if there is nothing to tell."""
    shown = drawing(graph, BOXES_MAX)
    if not shown.arrows:
        return []
    loops = [line for cycle in shown.cycles for line in _loop(shown, cycle)]
    rest = left_out_words(shown.left_out)
    return [*loops, *_Tree(shown, width).lines(), *([rest] if rest else [])]


def _loop(shown: Drawing, cycle: tuple[str, ...]) -> Iterator[str]:
    """A deadlock: each waits for the next, the last for the first."""
    boxes = {box.id: box for box in shown.boxes}
    how = {(arrow.source, arrow.target): arrow.label for arrow in shown.arrows}
    yield "deadlock: each waits for the next, the last for the first"
    for index, id_ in enumerate(cycle):
        following = cycle[(index + 1) % len(cycle)]
        last = index == len(cycle) - 1
        yield f"{'╭─▶' if index == 0 else '│  '} {_words(boxes[id_])}"
        yield f"{'╰──' if last else '│  '}{'─╯ ' if last else '  │ '}{how.get((id_, following), '')}".rstrip()
        if not last:
            yield "│    ▼"


class _Tree:
    """Each box once, under the first that it waits for; where it waits for more, a line says so there."""

    def __init__(self, shown: Drawing, width: int) -> None:
        self._width = width
        self._boxes = {box.id: box for box in shown.boxes}
        self._waiters: defaultdict[str, list[Arrow]] = defaultdict(list)
        waiting = set()
        for arrow in shown.arrows:
            if not arrow.cyclic:
                self._waiters[arrow.target].append(arrow)
                waiting.add(arrow.source)
        in_loop = {id_ for cycle in shown.cycles for id_ in cycle}
        roots = [box for box in shown.boxes if box.id not in waiting or box.id in in_loop]
        order = sorted(roots, key=lambda box: (not box.blamed, -len(self._waiters[box.id])))
        self._roots = [box for box in order if self._waiters[box.id] or box.id not in in_loop]
        self._later: list[str] = []
        self._told: set[str] = set()

    def lines(self) -> list[str]:
        # Whoever waits in a circle that nobody called a deadlock hangs on no root.
        left = (box for box in self._boxes.values() if self._waiters[box.id] and box.id not in self._told)
        found = [line for root in self._roots for line in self._tree(root)]
        return found + [line for root in left for line in self._tree(root)]

    def _tree(self, root: Box) -> Iterator[str]:
        """A root with all its branches; those that grew too deep start again at the left."""
        yield from self._branch(root, "", "")
        while self._later:
            following = self._later.pop(0)
            if following not in self._told:
                yield from self._branch(self._boxes[following], "", "")

    def _branch(self, box: Box, first: str, indent: str) -> Iterator[str]:
        if box.id in self._told:
            yield f"{first}{box.label} (above)"
            return
        self._told.add(box.id)
        arrows = self._waiters[box.id]
        hanging = f"{indent}{'│' if arrows else ' '}    "
        yield from wrap(
            f"{first}{_words(box)}",
            max(self._width, len(hanging) + ROOM_MIN),
            subsequent_indent=hanging,
            break_on_hyphens=False,
            drop_whitespace=True,
        )
        if arrows and len(indent) >= 3 * DEPTH_MAX:
            yield f"{indent}└─◀ continued below"
            self._later += [arrow.source for arrow in arrows]
            return
        for index, arrow in enumerate(arrows):
            last = index == len(arrows) - 1
            label = f"{arrow.label}: " if arrow.label else ""
            yield from self._branch(
                self._boxes[arrow.source],
                f"{indent}{'└' if last else '├'}─◀ {label}",
                f"{indent}{'   ' if last else '│  '}",
            )


def _words(box: Box) -> str:
    name = ", ".join([f"{'◆ ' if box.blamed else ''}{box.label}", *box.marks])
    return f"{name}: {box.note}" if box.note else name
