"""The merged stack tree: what is folded, who is here and who is there."""

from firstlight.core.graph import StackTree, TreeFrame
from firstlight.core.report import Report
from firstlight.report.stacks import DEPTH_MAX, FRAMES_MAX, folded, members, stretches, tree_lines


def frame(parent: int, function: str, present: str, count: int, leaf: int = 0) -> TreeFrame:
    return TreeFrame(
        parent=parent, function=function, place=f"{function}.py:1", present=present, count=count, leaf=leaf
    )


def test_a_tree_parts_where_the_ranks_do(rich: Report) -> None:
    (root,) = stretches(rich.tree)
    assert members(rich.tree, root) == "all 8 (ranks 0-7)"
    assert [members(rich.tree, one) for one in root.onward] == ["7 here (ranks 0-6)", "1 there (rank 7)"]
    assert [one.frames[-1].function for one in root.onward] == ["all_reduce", "wait"]


def test_pids_are_called_pids() -> None:
    tree = StackTree(members=2, by_rank=False, frames=(frame(-1, "a", "11", 1, 1), frame(-1, "b", "12", 1, 1)))
    assert [members(tree, one) for one in stretches(tree)] == ["1 here (pid 11)", "1 here (pid 12)"]


def test_a_stack_that_ends_halfway_is_told_where_it_ends() -> None:
    tree = StackTree(members=2, frames=(frame(-1, "a", "0-1", 2, 1), frame(0, "b", "1", 1, 1)))
    assert tree_lines(tree) == [
        "all 2 (ranks 0-1)",
        "│ a (a.py:1)  ← 1 stack ends here",
        "└─ 1 here (rank 1)",
        "     b (b.py:1)",
    ]


def test_a_long_chain_is_folded_in_its_middle() -> None:
    chain = tuple(frame(depth - 1, f"f{depth}", "0", 1) for depth in range(30))
    (root,) = stretches(StackTree(members=2, frames=chain))
    begin, middle, end = folded(root.frames)
    assert (len(begin), len(middle), len(end)) == (2, 24, 4)
    assert "  … 24 frames more …" in tree_lines(StackTree(members=2, frames=chain))


def test_parents_that_make_no_sense_are_roots() -> None:
    tree = StackTree(members=3, frames=(frame(0, "self", "0", 1), frame(9, "later", "1", 1), frame(-7, "x", "2", 1)))
    assert len(stretches(tree)) == 3


def test_a_tree_without_end_ends() -> None:
    deep = [frame(-1, "root", "0", 1000)]
    for depth in range(300):
        at = len(deep) - 1 if depth == 0 else len(deep) - 2
        deep += [frame(at, f"on{depth}", f"{depth}", 999 - depth), frame(at, f"off{depth}", f"x{depth}", 1)]
    lines = tree_lines(StackTree(members=1000, frames=tuple(deep)))
    assert any("frames more beneath" in line for line in lines)
    assert max(map(len, lines)) < 4 * DEPTH_MAX + 100
    wide = tuple(frame(-1, f"f{n}", f"{n}", 1) for n in range(FRAMES_MAX + 500))
    assert len(tree_lines(StackTree(members=9999, frames=wide))) == 201


def test_one_stack_alone_is_no_tree(rich: Report) -> None:
    assert stretches(StackTree(members=1, frames=rich.tree.frames)) == ()
