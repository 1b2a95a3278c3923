"""What is drawn of a wait-for graph: equal waiters as one box, parallel edges as one arrow, and never too much. Pure.

Boxes are equal when they wait the same way for the same, and the same wait for them: the coarsest such partition, as
of automata that are minimised. Members of a deadlock are never grouped, since who waits for whom is the point there.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from firstlight.core.graph import Edge, Node, WaitGraph
from firstlight.core.words import counted, printable

BOXES_MAX = 400
ARROWS_MAX = 1200
NODES_MAX = 20_000
"""Of a graph beyond that, only the beginning is looked at."""
LABEL_MAX = 120
REFINING_MAX = 1_000_000
"""Edges looked at while equal boxes are sought; a graph that needs more is drawn without grouping."""


class Box(NamedTuple):
    """One node, or several equal ones. `awaited` if somebody waits for it; `marks` say what sets it apart."""

    id: str
    kind: str
    label: str
    note: str
    blamed: bool
    gone: bool
    cyclic: bool
    members: tuple[str, ...]
    awaited: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        blame = "others wait for it" if self.awaited else "see the findings"
        spoken = {blame: self.blamed, "deadlock": self.cyclic, "ended": self.gone}
        return tuple(words for words, holds in spoken.items() if holds)


class Arrow(NamedTuple):
    """`source` waits for `target` (ids of boxes); `cyclic` if both are in the same deadlock."""

    source: str
    target: str
    label: str
    cyclic: bool


class Drawing(NamedTuple):
    """Boxes, the arrows between them, deadlocks as ids of boxes in order, and how many nodes did not fit."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    cycles: tuple[tuple[str, ...], ...]
    left_out: int = 0


def drawing(graph: WaitGraph, most: int = BOXES_MAX) -> Drawing:
    """What to draw of `graph`, with at most `most` boxes: those nearest to a deadlock or a sink.

    Who neither waits nor is waited for is no part of the picture.
    """
    nodes = {node.id: node for node in graph.nodes[:NODES_MAX]}
    edges = [edge for edge in graph.edges[: 4 * NODES_MAX] if edge.source in nodes and edge.target in nodes]
    cycles = tuple(cycle for cycle in graph.cycles if cycle and all(id_ in nodes for id_ in cycle))
    cyclic = {id_ for cycle in cycles for id_ in cycle}
    class_of = _classes(nodes, edges, cyclic)
    members: defaultdict[int, list[Node]] = defaultdict(list)
    for node in nodes.values():
        members[class_of[node.id]].append(node)
    box_of = {number: _box(alike, alike[0].id in cyclic) for number, alike in members.items()}
    id_of = {id_: box_of[class_of[id_]].id for id_ in nodes}
    arrows = _arrows(edges, id_of, cycles)
    concerned = {id_ for arrow in arrows for id_ in (arrow.source, arrow.target)}
    awaited = {arrow.target for arrow in arrows}
    boxes = [box._replace(awaited=box.id in awaited) for box in box_of.values() if box.id in concerned or box.blamed]
    kept = _nearest(boxes, arrows, [id_of[id_] for id_ in (*cyclic, *graph.sinks) if id_ in id_of], most)
    shown = tuple(box for box in boxes if box.id in kept)
    return Drawing(
        boxes=shown,
        arrows=tuple(one for one in arrows if one.source in kept and one.target in kept)[:ARROWS_MAX],
        cycles=tuple(cycle for cycle in cycles if kept.issuperset(cycle)),
        left_out=sum(len(box.members) for box in boxes) - sum(len(box.members) for box in shown),
    )


def _classes(nodes: Mapping[str, Node], edges: list[Edge], cyclic: set[str]) -> dict[str, int]:
    """The number of each node's class."""
    keys: dict[str, object] = {
        id_: (node.kind, _shape(node.label), _shape(node.note), node.blamed, node.gone, id_ if id_ in cyclic else "")
        for id_, node in nodes.items()
    }
    class_of = _numbered(keys)
    for _ in range(max(4, REFINING_MAX // max(1, len(edges)))):
        around: defaultdict[str, set[tuple[str, str, str, int]]] = defaultdict(set)
        for edge in edges:
            how = (edge.kind, _shape(edge.label))
            around[edge.source].add(("for", *how, class_of[edge.target]))
            around[edge.target].add(("by", *how, class_of[edge.source]))
        finer = _numbered({id_: (number, frozenset(around[id_])) for id_, number in class_of.items()})
        if len(set(finer.values())) == len(set(class_of.values())):
            return class_of
        class_of = finer
    return _numbered({id_: id_ for id_ in nodes})


def _numbered(keys: Mapping[str, object]) -> dict[str, int]:
    numbers: dict[object, int] = {}
    return {id_: numbers.setdefault(key, len(numbers)) for id_, key in keys.items()}


def _shape(text: str) -> str:
    """A text without what tells one of many from the next: pids, ranks, descriptors, addresses."""
    return re.sub(r"0x[0-9a-f]+|\d+", "#", text[:400])


def _box(alike: list[Node], cyclic: bool) -> Box:
    first = alike[0]
    ids = tuple(node.id for node in alike)
    label, note = printable(first.label, LABEL_MAX) or first.kind, printable(first.note, LABEL_MAX)
    if len(alike) > 1:
        ranks = [node.rank for node in alike]
        told = min(ranks) >= 0 and len(set(ranks)) == len(ranks)
        note = _common([node.note for node in alike])
        like = f"{len(alike)} like {label}"
        label, note = (f"ranks {spans(ranks)}", f"{like}; {note}" if note else like) if told else (like, note)
    return Box(first.id, first.kind, label, note, first.blamed, first.gone, cyclic, ids)


def spans(numbers: Iterable[int]) -> str:
    """Numbers in short: "0-6,9"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def _common(texts: list[str]) -> str:
    """What texts of one shape say together: where their numbers differ, an ellipsis."""
    if len(set(texts)) == 1:
        return printable(texts[0], LABEL_MAX)
    return printable(re.sub(r"0x[0-9a-f]+|\d+", "…", texts[0][:400]), LABEL_MAX)


def _arrows(edges: list[Edge], id_of: Mapping[str, str], cycles: tuple[tuple[str, ...], ...]) -> list[Arrow]:
    """One arrow for all edges between two boxes."""
    steps = {step for cycle in cycles for step in zip(cycle, (*cycle[1:], cycle[0]), strict=True)}
    labels: defaultdict[tuple[str, str], defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    in_cycle: Counter[tuple[str, str]] = Counter()
    for edge in edges:
        ends = (id_of[edge.source], id_of[edge.target])
        words = edge.label or edge.kind.replace("_", " ")
        labels[ends][_shape(words)].append(words)
        in_cycle[ends] += (edge.source, edge.target) in steps
    return [
        Arrow(*ends, label=printable(", ".join(map(_common, said.values())), LABEL_MAX), cyclic=in_cycle[ends] > 0)
        for ends, said in labels.items()
    ]


def _nearest(boxes: list[Box], arrows: list[Arrow], heart: list[str], most: int) -> set[str]:
    """The ids of at most `most` boxes: whom the others wait for first, then whoever waits for them, then the rest."""
    waiters: defaultdict[str, list[str]] = defaultdict(list)
    for arrow in arrows:
        waiters[arrow.target].append(arrow.source)
    waiting = {arrow.source for arrow in arrows}
    found: dict[str, None] = {}
    starts = [*(box.id for box in boxes if box.blamed), *heart]
    ends = [box.id for box in boxes if box.id not in waiting]
    for start in (starts, ends, [box.id for box in boxes]):
        queue = deque(start)
        while queue:
            id_ = queue.popleft()
            if id_ not in found:
                found[id_] = None
                queue.extend(waiters[id_])
    drawn = {box.id for box in boxes}
    return set([id_ for id_ in found if id_ in drawn][:most])


def left_out_words(count: int) -> str:
    """What is said where not everything fits."""
    return f"{counted(count, 'more node')} left out, farther from where the waiting ends" if count else ""
