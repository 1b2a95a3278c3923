"""The wait-for graph: what is grouped, where it stands, and how it reads as text and as Mermaid."""

import random
import re
from itertools import pairwise

import pytest

from firstlight.core.graph import Edge, Node, WaitGraph
from firstlight.core.report import Report
from firstlight.report.picture.drawing import BOXES_MAX, Drawing, drawing, spans
from firstlight.report.picture.layout import Layout, Size, layout
from firstlight.report.picture.lines import columns, cut, wrapped
from firstlight.report.picture.mermaid import mermaid
from firstlight.report.picture.svg import svg
from firstlight.report.picture.text import lines


def node(id_: str, kind: str = "process", **more: object) -> Node:
    return Node(id=id_, kind=kind, **{"label": id_, **more})  # type: ignore[arg-type]


def edge(ends: str, label: str = "", kind: str = "pipe") -> Edge:
    source, target = ends.split(">")
    return Edge(source=source, target=target, kind=kind, label=label)


def graph(*ends: str, cycles: tuple[tuple[str, ...], ...] = (), blamed: str = "") -> WaitGraph:
    names = dict.fromkeys(name for pair in ends for name in pair.split(">"))
    nodes = tuple(node(name, blamed=name == blamed) for name in names)
    return WaitGraph(nodes=nodes, edges=tuple(map(edge, ends)), cycles=cycles)


def labels(shown: Drawing) -> list[str]:
    return [box.label for box in shown.boxes]


def ranks(count: int, target: str = "c", **more: object) -> tuple[list[Node], list[Edge]]:
    nodes = [node(f"w{n}", label=f"worker rank {n} (pid {n + 9})", rank=n, **more) for n in range(count)]
    return nodes, [edge(f"w{n}>{target}", "all-reduce") for n in range(count)]


class TestGrouping:
    def test_ranks_that_wait_alike_are_one_box(self) -> None:
        nodes, edges = ranks(7)
        shown = drawing(WaitGraph(nodes=(*nodes, node("c")), edges=tuple(edges)))
        assert labels(shown) == ["ranks 0-6", "c"]
        assert shown.boxes[0].note == "7 like worker rank 0 (pid 9)"
        assert [(arrow.source, arrow.target, arrow.label) for arrow in shown.arrows] == [("w0", "c", "all-reduce")]

    def test_a_rank_that_somebody_waits_for_stands_alone(self) -> None:
        nodes, edges = ranks(4)
        shown = drawing(WaitGraph(nodes=(*nodes, node("c"), node("x")), edges=(*edges, edge("x>w2"))))
        assert labels(shown) == ["ranks 0-1,3", "worker rank 2 (pid 11)", "c", "x"]

    @pytest.mark.parametrize("how", [{"label": "gather"}, {"kind": "socket"}])
    def test_a_rank_that_waits_otherwise_stands_alone(self, how: dict[str, str]) -> None:
        nodes, edges = ranks(3)
        odd = Edge(**{"source": "w1", "target": "c", "kind": "pipe", "label": "all-reduce", **how})
        shown = drawing(WaitGraph(nodes=(*nodes, node("c")), edges=(edges[0], odd, edges[2])))
        assert labels(shown) == ["ranks 0,2", "worker rank 1 (pid 10)", "c"]

    def test_whoever_is_blamed_or_gone_stands_alone(self) -> None:
        nodes, edges = ranks(3)
        blamed = node("w3", label="worker rank 3 (pid 12)", rank=3, blamed=True)
        gone = node("w4", label="worker rank 4 (pid 13)", rank=4, gone=True)
        more = (edge("w3>c", "all-reduce"), edge("w4>c", "all-reduce"))
        shown = drawing(WaitGraph(nodes=(*nodes, blamed, gone, node("c")), edges=(*edges, *more)))
        assert labels(shown)[:3] == ["ranks 0-2", "worker rank 3 (pid 12)", "worker rank 4 (pid 13)"]
        assert [box.marks for box in shown.boxes[1:3]] == [("see the findings",), ("ended",)]

    def test_chains_of_equal_members_are_equal_all_along(self) -> None:
        nodes, _ = ranks(5)
        threads = [node(f"t{n}", "thread", label=f"thread {n}", rank=n) for n in range(5)]
        edges = [edge(f"w{n}>t{n}") for n in range(5)] + [edge(f"t{n}>c") for n in range(5)]
        shown = drawing(WaitGraph(nodes=(*nodes, *threads, node("c")), edges=tuple(edges)))
        assert labels(shown) == ["ranks 0-4", "ranks 0-4", "c"]

    def test_a_pipeline_is_not_grouped_and_neither_is_a_deadlock(self) -> None:
        nodes, _ = ranks(4)
        chain = [edge("w0>w1"), edge("w1>w2"), edge("w2>w3")]
        assert len(drawing(WaitGraph(nodes=tuple(nodes), edges=tuple(chain))).boxes) == 4
        ring = WaitGraph(nodes=tuple(nodes), edges=(*chain, edge("w3>w0")), cycles=(("w0", "w1", "w2", "w3"),))
        assert len(drawing(ring).boxes) == 4
        assert all(arrow.cyclic for arrow in drawing(ring).arrows)

    def test_only_the_steps_of_a_deadlock_are_marked(self) -> None:
        shown = drawing(graph("a>b", "b>c", "c>a", "a>c", "x>a", cycles=(("a", "b", "c"),)))
        marked = [arrow.source + arrow.target for arrow in shown.arrows if arrow.cyclic]
        assert marked == ["ab", "bc", "ca"]

    def test_who_neither_waits_nor_is_waited_for_is_left_out(self) -> None:
        alone = graph("a>b")
        more = WaitGraph(nodes=(*alone.nodes, node("x"), node("y", blamed=True)), edges=alone.edges)
        assert labels(drawing(more)) == ["a", "b", "y"]
        assert drawing(more).left_out == 0

    def test_of_too_many_those_near_the_end_of_the_waiting_stay(self) -> None:
        long = graph(*(f"n{n}x>n{n + 1}x" for n in range(20)))
        shown = drawing(long, 3)
        assert {box.id for box in shown.boxes} == {"n18x", "n19x", "n20x"}
        assert shown.left_out == 18
        assert lines(graph(*(f"n{n}x>n{n + 1}x" for n in range(70))))[-1].startswith("11 more nodes left out")

    def test_an_edge_to_nobody_and_a_cycle_of_strangers_are_no_harm(self) -> None:
        broken = WaitGraph(nodes=(node("a"), node("b")), edges=(edge("a>b"), edge("a>z")), cycles=(("a", "z"), ()))
        assert len(drawing(broken).arrows) == 1
        assert drawing(broken).cycles == ()

    def test_ten_thousand_ranks_are_a_few_boxes(self) -> None:
        nodes, edges = ranks(10_000)
        shown = drawing(WaitGraph(nodes=(*nodes, node("c")), edges=tuple(edges)))
        assert labels(shown) == ["ranks 0-9999", "c"]


def placed(of: WaitGraph) -> tuple[Drawing, Layout, dict[str, Size]]:
    shown = drawing(of)
    sizes = {box.id: Size(100 + 7 * len(box.label), 40) for box in shown.boxes}
    return shown, layout(shown, sizes), sizes


def random_graph(seed: int, count: int, edges: int) -> WaitGraph:
    chance = random.Random(seed)
    names = [f"n{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(count)]
    return graph(*(f"{chance.choice(names)}>{chance.choice(names)}" for _ in range(edges)))


class TestLayout:
    def test_waiters_stand_above_whom_they_wait_for(self) -> None:
        _, where, _ = placed(graph("a>b", "b>c", "a>c", "d>c"))
        assert {id_: spot.layer for id_, spot in where.spots.items()} == {"a": 0, "b": 1, "d": 1, "c": 2}
        assert not where.turned

    def test_a_long_arrow_bends_around_what_lies_between(self) -> None:
        shown, where, sizes = placed(graph("a>b", "b>c", "a>c"))
        long = next(arrow for arrow in shown.arrows if (arrow.source, arrow.target) == ("a", "c"))
        (bend,) = where.bends[long]
        assert bend.layer == 1
        assert abs(bend.x - where.spots["b"].x) > sizes["b"].width / 2

    def test_one_arrow_of_a_circle_is_turned(self) -> None:
        shown, where, _ = placed(graph("a>b", "b>c", "c>a"))
        assert len(where.turned) == 1
        assert where.layers == 3
        assert len(shown.arrows) == 3

    @pytest.mark.parametrize("seed", range(12))
    def test_no_boxes_touch_and_arrows_lead_down_unless_turned(self, seed: int) -> None:
        shown, where, sizes = placed(random_graph(seed, 30, 45))
        rows: dict[int, list[tuple[float, float]]] = {}
        for id_, spot in where.spots.items():
            rows.setdefault(spot.layer, []).append((spot.x - sizes[id_].width / 2, spot.x + sizes[id_].width / 2))
        for row in rows.values():
            row.sort()
            assert all(before[1] < after[0] for before, after in pairwise(row))
            assert row[0][0] >= -0.01
            assert row[-1][1] <= where.width + 0.01
        for arrow in shown.arrows:
            above, below = where.spots[arrow.source].layer, where.spots[arrow.target].layer
            assert arrow.source == arrow.target or (above < below) != (arrow in where.turned)

    def test_the_largest_graph_that_is_drawn_is_drawn(self) -> None:
        drawn = svg(random_graph(1, 600, 900))
        assert 100 < drawn.count('class="box') <= BOXES_MAX
        assert len(drawn) < 700_000
        assert re.search(r'class="note"[^>]*>\d+ more nodes left out', drawn)


class TestSvg:
    def test_it_says_who_is_to_blame_in_words_and_by_shape(self, rich: Report) -> None:
        drawn = svg(rich.graph)
        assert re.search(
            r'<g class="box blamed process"><title>process; Worker_TP7 .*others wait for it</title>', drawn
        )
        assert "◆ others wait for it" in drawn
        assert drawn.startswith('<svg class="graph" role="img" aria-labelledby=')

    def test_a_deadlock_is_marked_on_boxes_and_arrows(self, deadlock: WaitGraph) -> None:
        drawn = svg(deadlock)
        assert drawn.count('<g class="arrow cyclic">') == 2
        assert drawn.count("deadlock</text>") == 2
        assert "box gone process" in drawn

    def test_who_waits_for_itself_says_so(self) -> None:
        drawn = svg(WaitGraph(nodes=(node("a"),), edges=(edge("a>a", "a mutex"),), cycles=(("a",),)))
        assert "waits for itself: a mutex" in drawn

    def test_a_name_may_be_cut_but_not_its_pid(self) -> None:
        long = node("a", label=f"python -m {'package.' * 9}program (rank 3, pid 4711)")
        drawn = svg(WaitGraph(nodes=(long, node("b")), edges=(edge("a>b"),)))
        assert ">(rank 3, pid 4711)</text>" in drawn
        assert ">python -m</text>" in drawn

    @pytest.mark.parametrize("empty", [WaitGraph(), WaitGraph(nodes=(node("a", blamed=True),))])
    def test_where_nobody_waits_there_is_no_picture(self, empty: WaitGraph) -> None:
        assert svg(empty) == ""
        assert lines(empty) == []
        assert mermaid(empty) == []


class TestText:
    def test_the_tree_starts_where_the_waiting_ends(self) -> None:
        assert lines(graph("a>b", "b>c", "x>c")) == ["c", "├─◀ pipe: b", "│  └─◀ pipe: a", "└─◀ pipe: x"]

    def test_who_waits_for_two_is_told_once(self) -> None:
        told = lines(graph("a>b", "a>c", "z>a"))
        assert told == ["b", "└─◀ pipe: a", "   └─◀ pipe: z", "c", "└─◀ pipe: a (above)"]

    def test_a_deadlock_is_drawn_as_a_loop(self, deadlock: WaitGraph) -> None:
        assert lines(deadlock) == [
            "deadlock: each waits for the next, the last for the first",
            "╭─▶ ◆ MainThread (tid 10), others wait for it, deadlock: blocks while it holds the GIL",
            "│    │ mutex 0x7f12",
            "│    ▼",
            "│   loader (tid 11), deadlock: holds a mutex",
            "╰───╯ interpreter lock",
            "◆ MainThread (tid 10), others wait for it, deadlock: blocks while it holds the GIL",
            "└─◀ pipe 77: api (pid 3)",
            "coordinator (pid 2), ended",
            "└─◀ pipe 78: api (pid 3) (above)",
        ]

    def test_a_circle_that_nobody_called_a_deadlock_is_told_too(self) -> None:
        assert lines(graph("a>b", "b>a")) == ["a", "└─◀ pipe: b", "   └─◀ pipe: a (above)"]

    def test_nobody_is_lost_in_a_deep_chain(self) -> None:
        told = "\n".join(lines(graph(*(f"{chr(97 + n)}>{chr(98 + n)}" for n in range(25)), *("0>a", "1>0", "2>1"))))
        assert all(re.search(rf"(^|: ){name}$", told, re.MULTILINE) for name in "abcdefghijklmnopqrstuvwxyz012")
        assert "continued below" in told

    def test_long_words_hang_under_their_beginning(self, rich: Report) -> None:
        told = lines(rich.graph, 70)
        assert max(map(len, told)) <= 70
        assert "ranks 0-6" in "\n".join(told)


class TestMermaid:
    def test_it_names_shapes_and_marks_the_blamed(self, rich: Report) -> None:
        drawn = mermaid(rich.graph)
        assert drawn[0] == "flowchart TD"
        assert any(line.strip().startswith("n5{{") for line in drawn)
        assert drawn[-1] == "  class n3 blamed"

    def test_a_deadlock_has_thick_arrows(self, deadlock: WaitGraph) -> None:
        assert sum("==>" in line for line in mermaid(deadlock)) == 2

    def test_no_sign_with_a_meaning_is_left_in_a_label(self, hostile: Report) -> None:
        for line in mermaid(hostile.graph)[1:-2]:
            said = "".join(re.findall(r'"([^"]*)"', line)).replace("<br>", "")
            assert not set("<>\"'`@[]{}()|\\") & set(said)
            assert re.fullmatch(r"[^#;]*(#\d+;[^#;]*)*", said)

    def test_what_github_would_refuse_is_left_to_the_text(self) -> None:
        assert mermaid(random_graph(1, 200, 300)) == []


class TestLines:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("short", ["short"]),
            ("Worker_TP7 (rank 7, pid 107)", ["Worker_TP7", "(rank 7, pid 107)"]),
            ("/root/.cache/torch_extensions/fused/lock", ["/root/.cache/", "torch_extensions/", "fused/lock"]),
            ("x" * 60, ["x" * 20, "x" * 20, "x" * 20]),
            (
                "one two three four five six seven eight nine ten eleven",
                ["one two three four", "five six seven eight", "nine ten eleven"],
            ),
        ],
    )
    def test_lines_break_where_a_reader_would(self, text: str, expected: list[str]) -> None:
        found = wrapped(text, 20, 3)
        assert max(map(columns, found)) <= 20
        assert found == expected

    def test_of_a_long_path_the_end_is_kept(self) -> None:
        assert wrapped("/a" * 100 + "/lock", 20, 3)[-1].endswith("/lock")

    def test_wide_letters_count_twice(self) -> None:
        assert cut("日本語テキスト", 7) == "日本語…"
        assert columns(cut("日本語テキスト", 7)) == 7

    def test_numbers_in_short(self) -> None:
        assert spans([9, 0, 1, 2, 2, 4]) == "0-2,4,9"
