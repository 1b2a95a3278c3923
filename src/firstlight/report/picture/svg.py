"""The wait-for graph as inline SVG. Colours are the page's CSS variables; shapes and words say the same without."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from firstlight.core.graph import WaitGraph
from firstlight.core.words import counted, printable
from firstlight.report.picture import shapes
from firstlight.report.picture.drawing import Arrow, Box, drawing, left_out_words
from firstlight.report.picture.layout import Layout, Size, layout
from firstlight.report.picture.lines import columns, cut, text_width, wrapped

LABEL_PX, NOTE_PX, KIND_PX = 13.0, 11.5, 9.5
LABEL_COLUMNS, NOTE_COLUMNS, ARROW_COLUMNS = 26, 32, 34
PADDING, MARGIN = 14.0, 8.0
GAP_MIN, LABEL_ROW = 46.0, 19.0
WIDTH_MIN = 116.0
REST_HEIGHT = 24.0
ROWS_MAX = 6
"""Rows of labels between two layers; a thicket beyond that has labels that touch, rather than fields of nothing."""
HEAD = 7.0
SMALLEST_SCALE = 0.8
"""On a narrow screen the drawing shrinks so far, then it scrolls."""


class _Words(NamedTuple):
    """The lines in a box."""

    label: list[str]
    note: list[str]
    marks: str

    @property
    def size(self) -> Size:
        lines = [text_width(line, LABEL_PX * 1.06) for line in self.label]
        lines += [text_width(line, NOTE_PX) for line in (*self.note, self.marks)]
        height = 16 + 16 * len(self.label) + 14 * len(self.note) + (17 if self.marks else 0)
        return Size(max(WIDTH_MIN, *lines) + 2 * PADDING, height + 14)


class _Segment(NamedTuple):
    """A stretch of an arrow between two layers, from its upper to its lower end."""

    x1: float
    y1: float
    x2: float
    y2: float

    def x_at(self, y: float) -> float:
        """Where it is at a height: a cubic with upright ends, searched by halving."""
        low, high = 0.0, 1.0
        for _ in range(16):
            t = (low + high) / 2
            low, high = (t, high) if 1.5 * t * (1 - t) + t**3 < (y - self.y1) / (self.y2 - self.y1) else (low, t)
        return self.x1 + (self.x2 - self.x1) * (3 * low**2 - 2 * low**3)


def svg(graph: WaitGraph) -> str:
    """The drawing as an `svg` element, empty if there is nothing to draw."""
    shown = drawing(graph)
    if not shown.arrows:
        return ""
    selfish = {arrow.source: arrow.label for arrow in shown.arrows if arrow.source == arrow.target}
    words = {box.id: _words(box, selfish.get(box.id)) for box in shown.boxes}
    placed = layout(shown, {id_: one.size for id_, one in words.items()})
    sheet = _Sheet(placed, words, shown.boxes)
    rest = left_out_words(shown.left_out)
    width, height = sheet.width, sheet.height + (REST_HEIGHT if rest else 0)
    about = (
        f"{counted(len(shown.boxes), 'box', 'boxes')}, {counted(len(shown.arrows), 'arrow')}; "
        f"an arrow leads from who waits to whom it waits for. {rest}"
    )
    return (
        f'<svg class="graph" role="img" aria-labelledby="graph-title graph-about" viewBox="0 0 {width:.0f} '
        f'{height:.0f}" style="max-width:{width:.0f}px;min-width:{width * SMALLEST_SCALE:.0f}px">'
        f'<title id="graph-title">Who waits for whom</title><desc id="graph-about">{escape(about.strip())}</desc>\n'
        + "".join(sheet.arrows())
        + "".join(sheet.box(box) for box in shown.boxes)
        + (f'<text class="note" x="{width / 2:.0f}" y="{height - 8:.0f}">{escape(rest)}</text>\n' if rest else "")
        + "</svg>\n"
    )


def _words(box: Box, itself: str | None) -> _Words:
    marks = [*box.marks, *([f"waits for itself: {itself}"] if itself is not None else [])]
    diamond = "◆ " if box.blamed else ""
    line = cut(diamond + ", ".join(marks), NOTE_COLUMNS + 6) if marks else ""
    return _Words(_label(box.label), wrapped(box.note, NOTE_COLUMNS, 3), line)


def _label(label: str) -> list[str]:
    """A name may be cut, but not the rank and pid in brackets behind it."""
    if columns(label) <= LABEL_COLUMNS or not label.endswith(")"):
        return wrapped(label, LABEL_COLUMNS, 3)
    name, _, bracket = label.rpartition(" (")
    return [*wrapped(name, LABEL_COLUMNS, 2), cut(f"({bracket}", LABEL_COLUMNS)]


class _Sheet:
    """A layout with its heights: layers grow with their boxes, the spaces between them with the labels in them."""

    def __init__(self, placed: Layout, words: dict[str, _Words], boxes: Sequence[Box]) -> None:
        self._placed = placed
        self._words = words
        self._heights = [0.0] * placed.layers
        for box in boxes:
            layer = placed.spots[box.id].layer
            self._heights[layer] = max(self._heights[layer], words[box.id].size.height)
        self._paths = {arrow: self._path(arrow) for arrow in placed.bends}
        self._ports()
        self._labels, self._rows = self._label_rows()
        self._gaps = [max(GAP_MIN, LABEL_ROW * count + 30) for count in self._rows]
        self._tops = [MARGIN]
        for layer_height, gap in zip(self._heights, self._gaps, strict=True):
            self._tops.append(self._tops[-1] + layer_height + gap)

    @property
    def width(self) -> float:
        return self._placed.width + 2 * MARGIN

    @property
    def height(self) -> float:
        return self._tops[-1] - self._gaps[-1] + MARGIN

    def _path(self, arrow: Arrow) -> list[tuple[float, int]]:
        """Across and layer of every point of an arrow, upper end first."""
        upper, lower = arrow.source, arrow.target
        if arrow in self._placed.turned:
            upper, lower = lower, upper
        spots = [self._placed.spots[upper], *self._placed.bends[arrow], self._placed.spots[lower]]
        return [(spot.x + MARGIN, spot.layer) for spot in spots]

    def _ports(self) -> None:
        """Let arrows that meet at a box keep a little apart there."""
        for end, beside in ((0, 1), (-1, -2)):
            meeting: defaultdict[str, list[Arrow]] = defaultdict(list)
            for arrow in self._paths:
                is_upper = (end == 0) != (arrow in self._placed.turned)
                meeting[arrow.source if is_upper else arrow.target].append(arrow)
            for id_, arrows in meeting.items():
                arrows.sort(key=lambda arrow: self._paths[arrow][beside][0])
                room = self._words[id_].size.width - 48
                step = min(56.0, room / max(1, len(arrows) - 1))
                for index, arrow in enumerate(arrows):
                    x, layer = self._paths[arrow][end]
                    self._paths[arrow][end] = (x + (index - (len(arrows) - 1) / 2) * step, layer)

    def _label_rows(self) -> tuple[dict[Arrow, tuple[int, int]], list[int]]:
        """For each arrow the stretch that carries its label and the row of it there; and the rows under each layer.

        A label stands where its arrow is alone: near the source, unless several arrows start there.
        """
        starting: defaultdict[str, int] = defaultdict(int)
        for arrow in self._paths:
            starting[arrow.source] += 1
        rows: list[list[list[tuple[float, float]]]] = [[] for _ in range(self._placed.layers)]
        chosen = {}
        for arrow, path in sorted(self._paths.items(), key=lambda item: item[1][0][0]):
            near_source = starting[arrow.source] == 1
            stretch = 0 if near_source != (arrow in self._placed.turned) else len(path) - 2
            (x1, layer), (x2, _) = path[stretch], path[stretch + 1]
            half = text_width(cut(arrow.label, ARROW_COLUMNS), NOTE_PX) / 2 + 4
            extent = (min(x1, x2, (x1 + x2) / 2) - half, max(x1, x2) + half)
            taken = rows[layer]
            row = next((n for n, others in enumerate(taken) if not _touches(extent, others)), len(taken))
            if row == ROWS_MAX:
                row = min(range(ROWS_MAX), key=lambda n: len(rows[layer][n]))
            elif row == len(taken):
                taken.append([])
            taken[row].append(extent)
            chosen[arrow] = (stretch, row)
        return chosen, [len(taken) for taken in rows]

    def _segments(self, arrow: Arrow) -> list[_Segment]:
        points = self._paths[arrow]
        pieces: list[_Segment] = []
        for (x1, upper), (x2, lower) in pairwise(points):
            y1, y2 = self._tops[upper] + self._heights[upper], self._tops[lower]
            if pieces:  # through the layer that is passed
                pieces.append(_Segment(x1, self._tops[upper], x1, y1))
            pieces.append(_Segment(x1, y1, x2, y2))
        return pieces

    def arrows(self) -> Iterable[str]:
        """Lines first, labels after them, so that no line crosses a word."""
        for arrow in self._paths:
            yield self._line(arrow)
        for arrow in self._paths:
            yield self._label(arrow)

    def _line(self, arrow: Arrow) -> str:
        pieces = self._segments(arrow)
        first, last = pieces[0], pieces[-1]
        up = arrow in self._placed.turned
        tip_x, tip_y = (first.x1, first.y1) if up else (last.x2, last.y2)
        back = HEAD if up else -HEAD
        curves = "".join(
            f"C{one.x1:.0f} {(one.y1 + one.y2) / 2:.0f} {one.x2:.0f} {(one.y1 + one.y2) / 2:.0f} "
            f"{one.x2:.0f} {one.y2:.0f}"
            for one in pieces
        )
        head = f"M{tip_x:.1f} {tip_y:.1f}l{-HEAD * 0.6:.1f} {back:.1f}h{HEAD * 1.2:.1f}z"
        name = escape(f"{self._name(arrow.source)} waits for {self._name(arrow.target)}: {printable(arrow.label)}")
        return (
            f'<g class="arrow{" cyclic" if arrow.cyclic else ""}"><title>{name}</title>'
            f'<path class="line" d="M{first.x1:.0f} {first.y1:.0f}{curves}"/><path class="head" d="{head}"/></g>\n'
        )

    def _label(self, arrow: Arrow) -> str:
        stretch, row = self._labels[arrow]
        segment = self._segments(arrow)[2 * stretch]
        rows = self._rows[self._paths[arrow][stretch][1]]
        y = segment.y1 + (segment.y2 - segment.y1 - HEAD) * (row + 1) / (rows + 1)
        words = escape(cut(arrow.label, ARROW_COLUMNS))
        kind = "how cyclic" if arrow.cyclic else "how"
        return f'<text class="{kind}" x="{segment.x_at(y):.0f}" y="{y + 4:.0f}">{words}</text>\n'

    def _name(self, id_: str) -> str:
        return " ".join(self._words[id_].label)

    def box(self, box: Box) -> str:
        """A box with its words, in the shape of its kind."""
        spot, words = self._placed.spots[box.id], self._words[box.id]
        width, height = words.size.width, self._heights[spot.layer]
        x, y = spot.x + MARGIN, self._tops[spot.layer]
        classes = " ".join(
            ["box", *(name for name in ("blamed", "gone", "cyclic") if getattr(box, name)), shapes.name(box.kind)]
        )
        spoken = "; ".join(part for part in (box.kind, box.label, box.note, *box.marks) if part)
        lines = [(box.kind, "kind", KIND_PX, 13.0)]
        lines += [(line, "label", LABEL_PX, 16.0) for line in words.label]
        lines += [(line, "note", NOTE_PX, 14.0) for line in words.note]
        lines += [(words.marks, "mark", NOTE_PX, 17.0)] if words.marks else []
        top = y + (height - sum(step for *_, step in lines)) / 2 - 3
        texts = []
        for line, kind, _, step in lines:
            top += step
            texts.append(f'<text class="{kind}" x="{x:.0f}" y="{top:.0f}">{escape(line)}</text>')
        outline = shapes.outline(box.kind, x - width / 2, y, width, height)
        return f'<g class="{classes}"><title>{escape(spoken)}</title>{outline}{"".join(texts)}</g>\n'


def _touches(extent: tuple[float, float], others: Sequence[tuple[float, float]]) -> bool:
    return any(extent[0] < right and left < extent[1] for left, right in others)
