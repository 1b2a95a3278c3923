"""The outline of a box by what it stands for, so that nobody has to tell kinds by colour. Pure."""

KINDS = frozenset({"process", "thread", "file", "lock", "port", "peer", "device", "collective"})
CORNER = 10.0
"""How much is cut off or slanted, pixels."""

ROUND = 22.0
"""The radius of a thread's corners, pixels; more would cut into its words."""


def name(kind: str) -> str:
    """A kind as a CSS class."""
    return kind if kind in KINDS else "other"


def outline(kind: str, x: float, y: float, width: float, height: float) -> str:
    """SVG of the shape: a process is a box, a thread a pill, a file a page with a folded corner, a lock a hexagon, a
    device a chip with cut corners, a collective has two frames, what is elsewhere slants."""
    if kind in {"process", "thread", "collective"}:
        frame = _rectangle("shape", x, y, width, height, radius=ROUND if kind == "thread" else 7)
        return frame + (
            _rectangle("inner", x + 4, y + 4, width - 8, height - 8, radius=4) if kind == "collective" else ""
        )
    fold = f'<path class="inner" d="M{x + width - CORNER:.0f} {y:.0f}v{CORNER:.0f}h{CORNER:.0f}"/>'
    points = " ".join(f"{x + across:.0f},{y + down:.0f}" for across, down in _corners(kind, width, height))
    return f'<polygon class="shape" points="{points}"/>{fold if kind == "file" else ""}'


def _rectangle(part: str, x: float, y: float, width: float, height: float, *, radius: float) -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="{radius:.0f}"'
    return f'<rect class="{part}" {place}/>'


def _corners(kind: str, right: float, bottom: float) -> list[tuple[float, float]]:
    """Clockwise from the top left, with the left upper corner of the box at 0, 0."""
    middle, inner_right, inner_bottom = bottom / 2, right - CORNER, bottom - CORNER
    if kind == "file":
        return [(0, 0), (inner_right, 0), (right, CORNER), (right, bottom), (0, bottom)]
    if kind == "lock":
        upper = [(CORNER, 0), (inner_right, 0), (right, middle)]
        return [*upper, (inner_right, bottom), (CORNER, bottom), (0, middle)]
    if kind == "device":
        upper = [(0, CORNER), (CORNER, 0), (inner_right, 0), (right, CORNER)]
        return [*upper, (right, inner_bottom), (inner_right, bottom), (CORNER, bottom), (0, inner_bottom)]
    if kind in {"port", "peer"}:
        return [(CORNER, 0), (right, 0), (inner_right, bottom), (0, bottom)]
    return [(0, 0), (right, 0), (right, bottom), (0, bottom)]
