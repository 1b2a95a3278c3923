"""The stacks of all ranks merged into one prefix tree: eight ranks read as "7 here, rank 5 there". Pure.

Two frames are the same if function and file are; the line counts as well, except in the innermost frame of the
program itself and below it, where it may be any line of a loop or of a library's retries. Addresses and long numbers
in names are no difference either.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from firstlight.core.gap import Gap
from firstlight.core.graph import StackTree, TreeFrame
from firstlight.core.hosts import by_host
from firstlight.core.look import Frame, ThreadLook
from firstlight.core.vocabulary import Role
from firstlight.diagnose import frames
from firstlight.diagnose.ranks import workers
from firstlight.diagnose.scene import Scene
from firstlight.diagnose.standing import Standing

FRAMES_MAX = 4000
SPANS_MAX = 200
NATIVE_MAX = 12
_INTERPRETER = re.compile(
    r"^_?Py[A-Z]|^_?PyEval|^(cfunction|method|builtin|slot|function|object|type)_|^_start$|^clone3?$"
)

_Key = tuple[str, str, int]


class Member(NamedTuple):
    """One rank, or one process where there are no ranks, and its stack, innermost first."""

    number: int
    stack: tuple[Frame, ...]


@dataclass
class _Branch:
    """A frame of the tree in the making."""

    present: list[int] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)
    leaf: int = 0
    below: dict[_Key, "_Branch"] = field(default_factory=dict)


def stack_tree(members: Iterable[Member], *, by_rank: bool = True, hosts: tuple[str, ...] = ()) -> StackTree:
    """One tree of all stacks; those without one count as members only. `hosts` are the machines that pids are of."""
    alike: dict[tuple[Frame, ...], list[int]] = defaultdict(list)
    count = 0
    for member in members:
        count += 1
        alike[member.stack].append(member.number)
    root = _Branch()
    for stack, numbers in alike.items():
        _add(root, stack, numbers)
    named = intervals if by_rank or not hosts else partial(_intervals_by_host, hosts=hosts)
    return StackTree(members=count, frames=tuple(_frames(root, named)), by_rank=by_rank)


def tree_of(scene: Scene) -> StackTree:
    """The tree of a scene's ranks, each by the thread that tells most; of all its processes if it has no ranks."""
    ranked = {one.rank: one for one in reversed(_by_role(workers(scene.standings))) if one.rank >= 0}
    if ranked:
        return stack_tree(Member(rank, stack_of(ranked[rank].thread)) for rank in sorted(ranked))
    shown = (one for one in scene.standings if one.look.process.role is not Role.HELPER)
    return stack_tree(
        (Member(one.pid, stack_of(one.thread)) for one in shown), by_rank=False, hosts=scene.bundle.hosts
    )


def _by_role(standings: tuple[Standing, ...]) -> list[Standing]:
    return sorted(standings, key=lambda one: one.look.process.role is not Role.WORKER)


def stack_of(thread: ThreadLook | None) -> tuple[Frame, ...]:
    """The Python frames of a thread below the native ones that its innermost call has led to, innermost first."""
    if thread is None:
        return ()
    python = () if isinstance(thread.stack, Gap) else frames.telling(thread.stack)
    return (*_native(thread), *python)


def _native(thread: ThreadLook) -> Iterator[Frame]:
    """Native frames on top of the interpreter's; there is none for a thread that only the interpreter holds."""
    if isinstance(thread.native, Gap):
        return
    for frame in thread.native[:NATIVE_MAX]:
        if _INTERPRETER.match(frame.function):
            return
        if frames.words_of(frame):
            yield Frame(function=frame.function or "??", file=frame.library, line=0)


def _add(root: _Branch, stack: tuple[Frame, ...], numbers: list[int]) -> None:
    branch = root
    for key, line in _keys(stack):
        branch = branch.below.setdefault(key, _Branch())
        branch.present.extend(numbers)
        branch.lines.add(line)
    branch.leaf += len(numbers)


def _keys(stack: tuple[Frame, ...]) -> Iterator[tuple[_Key, int]]:
    """Outermost first, what makes a frame the same as another, and its line."""
    own = next((at for at, frame in enumerate(stack) if frame.line > 0 and not frames.is_plumbing(frame)), 0)
    for at in range(len(stack) - 1, -1, -1):
        frame = stack[at]
        yield (
            (frames.steady(frame.function), frames.steady(frames.basename(frame)), frame.line if at > own else 0),
            frame.line,
        )


def _frames(root: _Branch, named: Callable[[Iterable[int]], str]) -> Iterator[TreeFrame]:
    """Parents before children, the fullest branch first; the emptiest are left out where there are too many."""
    emptiest = _emptiest(root)
    at = 0
    work = [(key, branch, -1) for key, branch in _fullest_last(root)]
    while work and at < FRAMES_MAX:
        (function, file, _), branch, parent = work.pop()
        if len(branch.present) < emptiest:
            continue
        line = next(iter(branch.lines)) if len(branch.lines) == 1 else 0
        yield TreeFrame(
            parent=parent,
            function=function,
            place=f"{file}:{line}" if line > 0 else file,
            present=named(branch.present),
            count=len(branch.present),
            leaf=branch.leaf,
        )
        work += [(key, below, at) for key, below in _fullest_last(branch)]
        at += 1


def _fullest_last(branch: _Branch) -> list[tuple[_Key, _Branch]]:
    return sorted(branch.below.items(), key=lambda one: (len(one[1].present), one[0]))


def _emptiest(root: _Branch) -> int:
    """How full a branch must be to be shown: 0 unless there are too many."""
    counts: list[int] = []
    work = [root]
    while work:
        for branch in work.pop().below.values():
            counts.append(len(branch.present))
            work.append(branch)
    return 0 if len(counts) <= FRAMES_MAX else sorted(counts, reverse=True)[FRAMES_MAX - 1]


def intervals(numbers: Iterable[int]) -> str:
    """Numbers as "0-6,9"."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in spans[:SPANS_MAX]]
    return ",".join([*words, *(["…"] if len(spans) > SPANS_MAX else [])])


def _intervals_by_host(pids: Iterable[int], hosts: tuple[str, ...]) -> str:
    """Pids of several machines as "4711-4713 on node-1, 4711 on node-2"."""
    return ", ".join(
        f"{intervals(own)} on {host}" if host else intervals(own) for host, own in by_host(set(pids), hosts)
    )
