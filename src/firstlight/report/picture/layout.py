"""Where the boxes of a drawing stand: waiters above whom they wait for, in layers. Pure.

Sugiyama's scheme in its plainest form: turn the arrows that close a circle, put each box a layer above the lowest
that it can stand on (longest path to a sink), order the layers by barycentres, then move boxes towards their
neighbours as far as order and distance allow (least squares, by pooling adjacent violators).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from firstlight.report.picture.drawing import Arrow, Drawing

SWEEPS = 4
BEND_WIDTH = 18.0
"""What an arrow that passes a layer takes there, pixels."""
GAP = 26.0
"""Between neighbours in a layer, pixels."""


BENDS_MAX = 4000
"""Arrows that would need more go straight."""


class Size(NamedTuple):
    """Pixels."""

    width: float
    height: float


class Spot(NamedTuple):
    """Where a box or a bend of an arrow stands: its middle across, and its layer; 0 is the top one."""

    x: float
    layer: int


class Layout(NamedTuple):
    """`spots` by id of box; `bends` for each arrow where it passes the layers between its ends, from its upper end to
    its lower one; `turned` are the arrows whose target stands above their source. `width` is that of the whole."""

    spots: dict[str, Spot]
    bends: dict[Arrow, tuple[Spot, ...]]
    turned: frozenset[Arrow]
    layers: int
    width: float


def layout(drawing: Drawing, sizes: Mapping[str, Size]) -> Layout:
    """Place every box of `drawing`."""
    ids = [box.id for box in drawing.boxes]
    arrows = [arrow for arrow in drawing.arrows if arrow.source != arrow.target]
    turned = _circle_closers(ids, arrows)
    down = [(one, (one.target, one.source) if one in turned else (one.source, one.target)) for one in arrows]
    height = _heights(ids, [ends for _, ends in down])
    top = max(height.values(), default=0)
    layer_of = {id_: top - height[id_] for id_ in ids}
    widths = {id_: size.width for id_, size in sizes.items()}
    links: list[tuple[str, str]] = []
    chains: dict[Arrow, list[str]] = {}
    for number, (arrow, (upper, lower)) in enumerate(down):
        passed = range(layer_of[upper] + 1, layer_of[lower])
        chain = [f"\0{number}.{layer}" for layer in passed] if len(layer_of) < BENDS_MAX else []
        for offset, bend in enumerate(chain, 1):
            layer_of[bend], widths[bend] = layer_of[upper] + offset, BEND_WIDTH
        chains[arrow] = chain
        path = [upper, *chain, lower]
        links += pairwise(path)
    rows = _ordered(layer_of, links, top + 1)
    x_of = _placed(rows, links, widths)
    left = min((x_of[id_] - widths[id_] / 2 for id_ in x_of), default=0.0)
    right = max((x_of[id_] + widths[id_] / 2 for id_ in x_of), default=0.0)
    spot_of = {id_: Spot(x - left, layer_of[id_]) for id_, x in x_of.items()}
    return Layout(
        spots={id_: spot_of[id_] for id_ in ids},
        bends={arrow: tuple(spot_of[bend] for bend in chain) for arrow, chain in chains.items()},
        turned=turned,
        layers=top + 1,
        width=right - left,
    )


def _circle_closers(ids: Sequence[str], arrows: Sequence[Arrow]) -> frozenset[Arrow]:
    """The arrows that lead back into a path that a search in depth is on; without them there is no circle."""
    out: defaultdict[str, list[Arrow]] = defaultdict(list)
    for one in arrows:
        out[one.source].append(one)
    targets = {one.target for one in arrows}
    closers: set[Arrow] = set()
    done: set[str] = set()
    for start in sorted(ids, key=lambda id_: id_ in targets):
        path = {start: iter(out[start])} if start not in done else {}
        while path:
            id_ = next(reversed(path))
            arrow: Arrow | None = next(path[id_], None)
            if arrow is None:
                del path[id_]
                done.add(id_)
            elif arrow.target in path:
                closers.add(arrow)
            elif arrow.target not in done:
                path[arrow.target] = iter(out[arrow.target])
    return frozenset(closers)


def _heights(ids: Sequence[str], ends: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The longest way down from each box to one that stands on nothing. `ends` hold no circle."""
    uppers: defaultdict[str, list[str]] = defaultdict(list)
    below = dict.fromkeys(ids, 0)
    for upper, lower in ends:
        uppers[lower].append(upper)
        below[upper] += 1
    height = dict.fromkeys(ids, 0)
    ready = [id_ for id_ in ids if not below[id_]]
    for id_ in ready:
        for upper in uppers[id_]:
            height[upper] = max(height[upper], height[id_] + 1)
            below[upper] -= 1
            if not below[upper]:
                ready.append(upper)
    return height


def _neighbours(links: Sequence[tuple[str, str]]) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
    """Of each box or bend, those that it is linked to in the layer above, and below."""
    above: defaultdict[str, list[str]] = defaultdict(list)
    below: defaultdict[str, list[str]] = defaultdict(list)
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    return above, below


def _ordered(layer_of: Mapping[str, int], links: Sequence[tuple[str, str]], layers: int) -> list[list[str]]:
    """The layers, each in the order that lets few arrows cross."""
    rows: list[list[str]] = [[] for _ in range(layers)]
    for id_, layer in layer_of.items():
        rows[layer].append(id_)
    above, below = _neighbours(links)
    for sweep in range(2 * SWEEPS):
        beside, order = (above, range(layers)) if sweep % 2 == 0 else (below, range(layers - 1, -1, -1))
        place = {id_: (index + 0.5) / len(row) for row in rows for index, id_ in enumerate(row)}
        for layer in order:
            mean = {id_: _mean([place[other] for other in beside[id_]], place[id_]) for id_ in rows[layer]}
            rows[layer].sort(key=mean.__getitem__)
            place |= {id_: (index + 0.5) / len(rows[layer]) for index, id_ in enumerate(rows[layer])}
    return rows


def _placed(
    rows: Sequence[Sequence[str]], links: Sequence[tuple[str, str]], widths: Mapping[str, float]
) -> dict[str, float]:
    """How far right the middle of each stands."""
    above, below = _neighbours(links)
    x_of: dict[str, float] = {}
    for row in rows:
        x_of |= _apart(row, dict.fromkeys(row, 0.0), widths)
    for sweep in range(2 * SWEEPS):
        beside, order = (above, rows) if sweep % 2 == 0 else (below, list(reversed(rows)))
        for row in order:
            wished = {id_: _mean([x_of[other] for other in beside[id_]], x_of[id_]) for id_ in row}
            x_of |= _apart(row, wished, widths)
    return x_of


def _apart(row: Sequence[str], wished: Mapping[str, float], widths: Mapping[str, float]) -> dict[str, float]:
    """The places nearest to those wished for, in the same order and without touching."""
    offset, offsets = 0.0, []
    for before, id_ in zip((None, *row), row, strict=False):
        offset += (widths[before] + widths[id_]) / 2 + GAP if before is not None else 0.0
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []
    for id_, offset in zip(row, offsets, strict=True):
        mean, count = wished[id_] - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, others = blocks.pop()
            mean, count = (mean * count + other * others) / (count + others), count + others
        blocks.append((mean, count))
    levels = [mean for mean, count in blocks for _ in range(count)]
    return {id_: level + offset for id_, level, offset in zip(row, levels, offsets, strict=True)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
