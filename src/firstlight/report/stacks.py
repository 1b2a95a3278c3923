"""The merged stack tree, cut where the ranks part: what all stand in, then who is here and who is there. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.core.graph import StackTree, TreeFrame
from firstlight.core.words import counted, printable

FRAMES_MAX = 2000
DEPTH_MAX = 40
"""So often the members may part on one path; what lies deeper is counted."""
FIRST, LAST = 2, 4
"""Frames of a long stretch that are shown at once."""


class Stretch(NamedTuple):
    """Frames that call each other with the same members in all of them, outermost first, and where it goes from
    there. `usual` if no other stretch beside it has more members; `left_out` counts frames beneath that are not
    shown."""

    frames: tuple[TreeFrame, ...]
    onward: tuple["Stretch", ...]
    usual: bool
    left_out: int = 0


def stretches(tree: StackTree) -> tuple[Stretch, ...]:
    """The roots of the tree, those with most members first. A single member's stack parts nowhere: none."""
    return _Grower(tree).grow(-1, 0) if tree.members > 1 else ()


class _Grower:
    def __init__(self, tree: StackTree) -> None:
        self._frames = tree.frames
        self._called: defaultdict[int, list[int]] = defaultdict(list)
        for index, frame in enumerate(tree.frames):
            self._called[frame.parent if -1 <= frame.parent < index else -1].append(index)
        self._left = FRAMES_MAX

    def grow(self, parent: int, depth: int) -> tuple[Stretch, ...]:
        order = sorted(self._called[parent], key=lambda index: -self._frames[index].count)
        most = max((self._frames[index].count for index in order), default=0)
        return tuple(
            self._stretch(index, depth, usual=self._frames[index].count == most) for index in order if self._left > 0
        )

    def _stretch(self, index: int, depth: int, *, usual: bool) -> Stretch:
        chain = [index]
        while len(onward := self._called[chain[-1]]) == 1 and self._same(chain[-1], onward[0]):
            chain.append(onward[0])
        self._left -= len(chain)
        deeper = self.grow(chain[-1], depth + 1) if depth < DEPTH_MAX else ()
        left_out = 0 if len(deeper) == len(onward) else sum(1 for _ in self._beneath(onward[len(deeper) :]))
        return Stretch(tuple(self._frames[one] for one in chain), deeper, usual, left_out)

    def _same(self, upper: int, lower: int) -> bool:
        one, other = self._frames[upper], self._frames[lower]
        return (one.present, one.count) == (other.present, other.count)

    def _beneath(self, indexes: list[int]) -> Iterator[int]:
        waiting = list(indexes)
        while waiting:
            index = waiting.pop()
            yield index
            waiting += self._called[index]


def members(tree: StackTree, stretch: Stretch) -> str:
    """Who stands in it: "all 8 (ranks 0-7)", "7 here (ranks 0-6)", "1 there (rank 7)"."""
    frame = stretch.frames[0]
    noun = "rank" if tree.by_rank else "pid"
    which = printable(frame.present, 80)
    named = f" ({noun}{'' if frame.count == 1 else 's'} {which})" if which else ""
    if frame.count >= tree.members:
        return f"{'all ' if frame.count > 1 else ''}{frame.count}{named}"
    return f"{frame.count} {'here' if stretch.usual else 'there'}{named}"


def frame_line(frame: TreeFrame) -> str:
    """One frame, and how many stacks end in it where others go on."""
    place = f" ({printable(frame.place, 160)})" if frame.place else ""
    ends = f"  ← {counted(frame.leaf, 'stack ends', 'stacks end')} here" if 0 < frame.leaf < frame.count else ""
    return f"{printable(frame.function, 120)}{place}{ends}"


def folded(frames: tuple[TreeFrame, ...]) -> tuple[list[str], list[str], list[str]]:
    """The lines of a stretch: its beginning, a middle that may be folded, and its end."""
    lines = [frame_line(frame) for frame in frames]
    if len(lines) <= FIRST + LAST + 1:
        return lines, [], []
    return lines[:FIRST], lines[FIRST:-LAST], lines[-LAST:]


def tree_lines(tree: StackTree, most: int = 200) -> list[str]:
    """The tree as indented text, at most so many lines and one that tells of the rest."""
    lines = [line for root in stretches(tree) for line in _drawn(tree, root, "", "")]
    return lines if len(lines) <= most else [*lines[:most], f"… {len(lines) - most} more lines"]


def _drawn(tree: StackTree, stretch: Stretch, first: str, indent: str) -> Iterator[str]:
    yield f"{first}{members(tree, stretch)}"
    onward = bool(stretch.onward or stretch.left_out)
    bar = f"{indent}│ " if onward else f"{indent}  "
    begin, middle, end = folded(stretch.frames)
    between = [f"… {counted(len(middle), 'frame')} more …"] if middle else []
    yield from (f"{bar}{line}" for line in (*begin, *between, *end))
    for index, following in enumerate(stretch.onward):
        last = index == len(stretch.onward) - 1 and not stretch.left_out
        yield from _drawn(tree, following, f"{indent}{'└' if last else '├'}─ ", f"{indent}{'   ' if last else '│  '}")
    if stretch.left_out:
        yield f"{indent}└─ … {counted(stretch.left_out, 'frame')} more beneath"
