"""The stacks of all ranks as one tree."""

from tests.unit.diagnose.conftest import REFUSED, bundle, look, process, stack, thread, twice

from firstlight.core.graph import StackTree
from firstlight.core.look import NativeFrame
from firstlight.core.vocabulary import Role
from firstlight.diagnose.scene import scene_of
from firstlight.diagnose.tree import FRAMES_MAX, SPANS_MAX, Member, intervals, stack_tree, tree_of

MAIN = "main /app/main.py:3"
LOAD = "load /app/load.py:26"
BARRIER = "barrier /v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:5356"


def lines(tree: StackTree) -> list[str]:
    """The tree as text: a line a frame, indented by depth."""
    depth: list[int] = []
    for frame in tree.frames:
        depth.append(0 if frame.parent < 0 else depth[frame.parent] + 1)
    return [
        f"{'  ' * deep}{frame.function} {frame.place} [{frame.present}]"
        for deep, frame in zip(depth, tree.frames, strict=True)
    ]


def test_eight_ranks_read_as_seven_here_and_one_there() -> None:
    here, there = stack(BARRIER, LOAD, MAIN), stack("fetch /app/hub.py:7", MAIN)
    tree = stack_tree(Member(rank, there if rank == 5 else here) for rank in range(8))
    assert lines(tree) == [
        "main main.py:3 [0-7]",
        "  load load.py:26 [0-4,6-7]",
        "    barrier distributed_c10d.py:5356 [0-4,6-7]",
        "  fetch hub.py:7 [5]",
    ]
    assert [(frame.count, frame.leaf) for frame in tree.frames] == [(8, 0), (7, 0), (7, 7), (1, 1)]
    assert tree.members == 8


def test_lines_of_a_loop_are_one_place_and_lines_of_its_callers_are_not() -> None:
    def rank(loop: int, caller: int) -> Member:
        return Member(loop, stack(f"spin /app/spin.py:{loop}", f"load /app/load.py:{caller}"))

    assert lines(stack_tree([rank(1, 26), rank(2, 26)])) == ["load load.py:26 [1-2]", "  spin spin.py [1-2]"]
    assert len(stack_tree([rank(1, 26), rank(2, 27)]).frames) == 4


def test_addresses_numbers_and_folders_make_no_difference() -> None:
    first = stack("fn_0x7f3a12 /tmp/torchinductor_a/cx3f9ab27d01.py:1", MAIN)
    second = stack("fn_0x55d0ff /tmp/torchinductor_b/c0129ab27aff.py:1", MAIN)
    assert len(stack_tree([Member(0, first), Member(1, second)]).frames) == 2


def test_native_frames_stand_above_the_python_ones_as_far_as_the_interpreter() -> None:
    native = (
        NativeFrame(function="ncclCommInitRank", library="libnccl.so.2"),
        NativeFrame(function="_PyEval_Vector"),
    )
    waits = process(1, thread(1, stack(LOAD), native=native), rank=0)
    other = process(2, thread(2, stack(LOAD)), rank=1)
    assert lines(tree_of(scene_of(twice(waits, other)))) == [
        "load load.py:26 [0-1]",
        "  ncclCommInitRank libnccl.so.2 [0]",
    ]


def test_ranks_without_a_stack_are_members_of_no_branch() -> None:
    seen, unseen = process(1, thread(1, stack(LOAD)), rank=0), process(2, thread(2, REFUSED), rank=1)
    tree = tree_of(scene_of(twice(seen, unseen)))
    assert (tree.members, [frame.present for frame in tree.frames]) == (2, ["0"])


def test_without_ranks_the_tree_is_of_processes_and_leaves_out_helpers() -> None:
    front, helper = process(10, thread(10, stack(MAIN))), process(11, thread(11, stack(LOAD)), role=Role.HELPER)
    tree = tree_of(scene_of(twice(front, helper)))
    assert (tree.by_rank, lines(tree)) == (False, ["main main.py:3 [10]"])


def test_a_rank_counts_once_whatever_it_has_forked() -> None:
    worker = process(10, thread(10, stack(MAIN)), rank=0, role=Role.WORKER)
    copy = process(9, thread(9, stack(LOAD)), rank=0)
    assert lines(tree_of(scene_of(twice(copy, worker)))) == ["main main.py:3 [0]"]


def test_no_look_is_no_tree() -> None:
    assert tree_of(scene_of(bundle())).frames == ()
    assert tree_of(scene_of(bundle(look()))).members == 0


def test_thousands_of_different_stacks_are_cut_at_the_emptiest() -> None:
    common = [Member(rank, stack(LOAD, MAIN)) for rank in range(10)]
    words = ("".join(chr(97 + int(digit)) for digit in f"{n:05}") for n in range(2 * FRAMES_MAX))
    odd = [Member(10 + n, stack(f"f /app/{word}.py:1")) for n, word in enumerate(words)]
    tree = stack_tree([*common, *odd])
    assert len(tree.frames) <= FRAMES_MAX
    assert tree.frames[0].present == "0-9"
    assert all(frame.parent < at for at, frame in enumerate(tree.frames))


def test_ranks_are_written_as_intervals() -> None:
    assert intervals([3, 1, 2, 9, 9, 7]) == "1-3,7,9"
    assert intervals([]) == ""
    assert intervals(range(0, 10 * SPANS_MAX, 2)).endswith(",…")
