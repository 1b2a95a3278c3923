"""The live view as lines of styled pieces: pure, cheap, never wider than asked for.

A rich table of nine processes takes 8 ms to lay out; these lines take a fraction of one, and the whole of firstlight
may use less than 1 % of a core.
"""

import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from firstlight.cli.screen.plain import counter_words, requests
from firstlight.core.log import Counter, PhaseSpan
from firstlight.core.timeline import merged
from firstlight.core.view import LiveView, ProcessRow
from firstlight.core.vocabulary import Motion, Phase, Role
from firstlight.core.words import counted, printable, seconds, size

BAR_WIDTH_MAX = 40
PHASE_WIDTH = 30
ROWS_MIN = 4
ROWS_ROOM_MIN = 3
"""A table of less than a heading, a process and a count of the others says nothing."""

SPARED = ("writes", "rank", "memory", "reads", "GPU", "phase", "pid")
"""Columns that a narrow terminal does without, the least missed first."""

STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk wait",
    "T": "stopped",
    "t": "traced",
    "Z": "ended",
    "X": "ended",
    "I": "idle",
}
MOTION_STYLE = {Motion.MOVING: "green", Motion.SLOW: "yellow", Motion.QUIET: "yellow", Motion.STALLED: "bold red"}
_ORDER = {Role.FRONT: 0, Role.ENGINE: 1, Role.WORKER: 2, Role.HELPER: 3, Role.COMPILER: 4, Role.OTHER: 5}


class Piece(NamedTuple):
    """A run of characters in one style; rich's style language, empty for none."""

    text: str
    style: str = ""


Line = tuple[Piece, ...]


class _Column(NamedTuple):
    title: str
    cells: list[str]
    right: bool


def draw(view: LiveView, width: int, height: int, *, ending: str = "") -> list[Line]:
    """The whole view within `width` columns and `height` lines; where that is little, what stands and where comes
    first. `ending` says so while the server is being ended; it may hold the last way out, so it is never cut.
    """
    state = _ending(ending, width) if ending else _motion(view, width)
    if view.counter is not None and not ending:
        state.append(_progress(view.counter, view.eta_s, width))
    if height <= len(state):
        return state[:height]
    log: list[Line] = [(), _log(view.last_log, width)] if view.last_log else []
    spared = height - len(state) - len(log) - 1
    if spared < 1:
        return [_title(view, width), *state]
    phases = _phases(view, width)[-max(1, spared - ROWS_MIN - 1) :]
    rows = table(view.rows, width, spared - len(phases) - 1) if spared > len(phases) + 2 else []
    return [_title(view, width), *phases, *state, *([(), *rows] if rows else []), *log]


def _ending(words: str, width: int) -> list[Line]:
    return [(Piece(f"  {line}", "bold yellow"),) for line in textwrap.wrap(words, max(1, width - 2))]


def clip(line: Iterable[Piece], width: int) -> Line:
    """The line cut to `width` columns of a terminal, at the end of a word, with an ellipsis where something is
    missing; wide characters count as two.
    """
    pieces = tuple(line)
    if sum(_cells(piece.text) for piece in pieces) <= width:
        return pieces
    kept: list[Piece] = []
    left = width - 1
    for piece in pieces:
        used = _cells(piece.text)
        if used > left:
            kept.append(Piece(f"{_begin(piece.text, left)}…", piece.style))
            break
        kept.append(piece)
        left -= used
    return tuple(kept)


def _begin(text: str, width: int) -> str:
    """As many whole words as fit, or what fits of one long word."""
    from rich.cells import set_cell_size

    cut = set_cell_size(text, width)
    words, space, _ = cut.rpartition(" ")
    return words.rstrip() if space and words.strip() else cut.rstrip()


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)


def table(rows: Sequence[ProcessRow], width: int, room: int) -> list[Line]:
    """A heading and one line for each process, at most `room` lines of them; what is left out is counted. Columns
    that do not fit into `width` are left out whole.
    """
    if not rows or room < ROWS_ROOM_MIN:
        return []
    ordered = sorted(rows, key=lambda row: (_ORDER[row.role], row.rank, -row.cpu_percent, row.pid))
    shown = ordered if len(ordered) < room else ordered[: room - ROWS_ROOM_MIN + 1]
    columns = _fitting(_columns(shown), width)
    widths = [_width(column) for column in columns]
    lines: list[Line] = [(Piece(_aligned(columns, widths, [column.title for column in columns]), "dim"),)]
    for number, row in enumerate(shown):
        text = _aligned(columns, widths, [column.cells[number] for column in columns])
        lines.append((Piece(text, "red" if row.state in "TtZX" else ""),))
    if hidden := ordered[len(shown) :]:
        cpu = sum(row.cpu_percent for row in hidden)
        many = counted(len(hidden), "more process", "more processes")
        lines.append((Piece(f"  and {many}, CPU {cpu:.0f} % together", "dim"),))
    return [clip(line, width) for line in lines]


def _fitting(columns: list[_Column], width: int) -> list[_Column]:
    for spared in SPARED:
        if sum(_width(column) + 2 for column in columns) - 2 <= width:
            break
        columns = [column for column in columns if column.title != spared]
    return columns


def _width(column: _Column) -> int:
    return max(map(_cells, (column.title, *column.cells)))


def _columns(rows: Sequence[ProcessRow]) -> list[_Column]:
    columns = [
        _Column("process", [printable(row.label or row.name, 24) for row in rows], right=False),
        _Column("rank", [str(row.rank) if row.rank >= 0 else "" for row in rows], right=True),
        _Column("pid", [str(row.pid) for row in rows], right=True),
        _Column("phase", [row.phase or "" for row in rows], right=False),
        _Column("state", [STATES.get(row.state, row.state) for row in rows], right=False),
        _Column("CPU", [f"{row.cpu_percent:.0f} %" for row in rows], right=True),
        _Column("reads", [f"{size(row.read_bytes_s)}/s" for row in rows], right=True),
        _Column("writes", [f"{size(row.write_bytes_s)}/s" for row in rows], right=True),
        _Column("memory", [size(row.memory_bytes) for row in rows], right=True),
    ]
    gpus = [row.gpu_percent for row in rows]
    if any(gpu is not None for gpu in gpus):
        columns.append(_Column("GPU", [f"{gpu:.0f} %" if gpu is not None else "" for gpu in gpus], right=True))
    return [column for column in columns if any(column.cells)]


def _aligned(columns: Sequence[_Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    parts = (
        " " * (width - _cells(cell)) + cell if column.right else cell + " " * (width - _cells(cell))
        for column, width, cell in zip(columns, widths, cells, strict=True)
    )
    return "  ".join(parts).rstrip()


def _title(view: LiveView, width: int) -> Line:
    engine = f"{view.engine} {view.engine_version}".rstrip()
    where = f"  {view.url}" if view.url else ""
    return clip((Piece("firstlight", "bold"), Piece(f"  {engine}{where}  {seconds(view.elapsed_s)}")), width)


def _phases(view: LiveView, width: int) -> list[Line]:
    """Each phase with its time, and a bar that shows when it was."""
    spans = merged(view.timeline)
    if not spans:
        return []
    began = spans[0].began
    whole = max(view.now - began, 0.001)
    room = max(0, min(BAR_WIDTH_MAX, width - PHASE_WIDTH))
    return [clip(_phase(span, view.now, began, room / whole), width) for span in spans]


def _phase(span: PhaseSpan, now: float, zero: float, scale: float) -> Line:
    ended = now if span.ended is None else span.ended
    name = f"  {span.phase:<14}{seconds(ended - span.began):>12}  "
    style = "bold" if span.ended is None else ""
    if not scale:
        return (Piece(f"  {span.phase} {seconds(ended - span.began)}", style),)
    before = int((span.began - zero) * scale)
    bar = "█" * max(1, round((ended - span.began) * scale))
    return (Piece(name, style), Piece(" " * before + bar, "cyan" if span.ended is None else "blue"))


def _motion(view: LiveView, width: int) -> list[Line]:
    """What the server does, and where: one line, or two where the reason is long."""
    words = printable(view.why)
    if view.phase == Phase.SERVING and view.motion != Motion.STALLED:
        standing = f"serving, {requests(view.in_flight)}" if view.in_flight is not None else "serving"
        return _wrapped(standing, "green", words if view.in_flight != 0 else "", width)
    lasting = f" for {seconds(view.quiet_s)}" if view.motion == Motion.STALLED else ""
    looking = ", looking closer" if view.looking else ""
    return _wrapped(f"{view.motion}{lasting} in {view.phase}{looking}", MOTION_STYLE[view.motion], words, width)


def _wrapped(standing: str, style: str, why: str, width: int) -> list[Line]:
    """The standing, then the reason: beside it where it fits, else below it."""
    beside = (Piece(f"  {standing}", style), *((Piece(f"  {why}"),) if why else ()))
    if not why or sum(_cells(piece.text) for piece in beside) <= width:
        return [clip(beside, width)]
    return [clip(beside[:1], width), clip((Piece(f"    {why}"),), width)]


def _log(text: str, width: int) -> Line:
    return clip((Piece("log  ", "dim"), Piece(printable(text))), width)


def _progress(counter: Counter, eta_s: float | None, width: int) -> Line:
    words = counter_words(counter, eta_s)
    columns = max(0, min(BAR_WIDTH_MAX, width - len(words) - 4))
    filled = round(max(0.0, min(counter.fraction, 1.0)) * columns)
    bar = (Piece("  "), Piece("━" * filled, "green"), Piece("━" * (columns - filled), "dim"))
    return clip((*bar, Piece(f"  {words}")), width)
