"""The wait-for graph as a Mermaid diagram, which GitHub draws. Labels are escaped: they hold what processes say."""

import re

from firstlight.core.graph import WaitGraph
from firstlight.report.picture.drawing import Box, drawing
from firstlight.report.picture.lines import cut

BOXES_MAX = 60
ARROWS_MAX = 150
"""A diagram with more is refused or unreadable; the text form tells it all the same."""
LABEL_COLUMNS = 60

_SHAPES = {
    "thread": ("([", "])"),
    "file": ("[/", "/]"),
    "lock": ("{{", "}}"),
    "device": ("[[", "]]"),
    "collective": ("[[", "]]"),
    "peer": ("[/", "\\]"),
    "port": ("[/", "\\]"),
}


def mermaid(graph: WaitGraph) -> list[str]:
    """The lines of the diagram; none if there is nothing to draw, or too much."""
    shown = drawing(graph, BOXES_MAX)
    if not shown.arrows or shown.left_out or len(shown.arrows) > ARROWS_MAX:
        return []
    names = {box.id: f"n{number}" for number, box in enumerate(shown.boxes)}
    lines = ["flowchart TD"]
    lines += [f"  {names[box.id]}{_shaped(box)}" for box in shown.boxes]
    for arrow in shown.arrows:
        line = "==>" if arrow.cyclic else "-->"
        label = f'|"{_escaped(arrow.label)}"|' if arrow.label else ""
        lines.append(f"  {names[arrow.source]} {line}{label} {names[arrow.target]}")
    blamed = ",".join(names[box.id] for box in shown.boxes if box.blamed)
    if blamed:
        lines += ["  classDef blamed stroke:#c0392b,stroke-width:4px", f"  class {blamed} blamed"]
    return lines


def _shaped(box: Box) -> str:
    left, right = _SHAPES.get(box.kind, ("[", "]"))
    marks = f"◆ {', '.join(box.marks)}" if box.blamed else ", ".join(box.marks)
    words = "<br>".join(_escaped(part) for part in (box.label, box.note, marks) if part)
    return f'{left}"{words}"{right}'


def _escaped(text: str) -> str:
    """Everything but letters, digits and a few harmless signs as Mermaid's entity codes."""
    return re.sub(r"[^\w .,:◆…/-]|_", lambda found: f"#{ord(found[0])};", cut(text, LABEL_COLUMNS))
