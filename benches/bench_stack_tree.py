"""How long the stacks of 10,000 ranks take to merge, and in how much memory: 40 frames deep, some 20 distinct shapes,
the innermost line another in every rank. The aims: 2 s and 500 MB."""

import resource
import time

from firstlight.core.look import Frame
from firstlight.diagnose.tree import Member, stack_tree

RANKS = 10_000
DEEP = 40
SHAPES = 20
TIMES = 5


def stack(shape: int, line: int) -> tuple[Frame, ...]:
    """Every frame an object of its own, as they come from a file. A shape leaves the common way at its own depth."""
    return tuple(
        Frame(
            function=f"step_{depth}_{shape}" if depth > shape else f"step_{depth}",
            file=f"/v/lib/python3.11/site-packages/engine/part_{depth % 7}.py",
            line=100 + depth if depth < DEEP - 1 else line,
            code="x = self.forward(y)",
        )
        for depth in reversed(range(DEEP))
    )


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


print(__doc__)
members = [Member(rank, stack(rank * 7919 % SHAPES, rank)) for rank in range(RANKS)]
before = memory_mb()
seconds = []
for _ in range(TIMES):
    began = time.perf_counter()
    tree = stack_tree(members)
    seconds.append(time.perf_counter() - began)
print(f"{RANKS} ranks, {len(tree.frames)} frames in the tree")
print(f"merging: {min(seconds):.2f} s at best, {max(seconds):.2f} s at worst of {TIMES}")
print(f"memory: {memory_mb():.0f} MB in all, {before:.0f} MB of it the stacks themselves")
