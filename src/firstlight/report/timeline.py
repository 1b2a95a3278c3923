"""What happened when: the phases of the server and of each rank on one time axis, and the series under them. Pure."""

from collections import defaultdict
from typing import NamedTuple

from firstlight.core.graph import Strip
from firstlight.core.log import PhaseSpan
from firstlight.core.report import Report
from firstlight.core.timeline import merged
from firstlight.core.vocabulary import Outcome, Phase
from firstlight.core.words import printable, size
from firstlight.report.picture.drawing import spans

LANES_MAX = 256
SECONDS_MAX = 1e10
VALUE_MAX = 1e18
"""What a made-up report may claim; three hundred years, and more bytes a second than there are."""
SERIES_ORDER = ("cpu", "gpu", "io")
SERIES_NAMES = {"cpu": "CPU", "gpu": "GPU", "io": "I/O"}
DID_NOT_END = "did not end"
_BLOCKS = "▁▂▃▄▅▆▇█"


class Bar(NamedTuple):
    """A phase on the timeline; `offset` and `share` are fractions of the whole. `stuck` if it should have ended;
    `note` then says of which ranks."""

    phase: Phase
    seconds: float
    offset: float
    share: float
    stuck: bool
    note: str = ""


class Lane(NamedTuple):
    """One rank, or one process without: its phases and its series."""

    name: str
    rank: int
    bars: tuple[Bar, ...]
    strips: tuple[Strip, ...]


class Axis(NamedTuple):
    """What the timeline covers: wall time and seconds."""

    began: float
    whole: float


def axis(report: Report) -> Axis:
    """From the start, or the first phase seen, to the end."""
    began = min([report.started, *(span.began for span in report.timeline)])
    ended = max([report.ended, *(span.ended for span in report.timeline if span.ended is not None)])
    return Axis(began, min(max(0.001, ended - began), SECONDS_MAX))


def bars(report: Report) -> list[Bar]:
    """The phases of the server as a whole; none where there is one alone, which the report's first lines tell of,
    unless it has ended on some ranks.
    """
    along = axis(report)
    placed = [_bar(report, span, along) for span in merged(report.timeline)]
    noted = [bar._replace(note=_unfinished(report, bar)) if bar.stuck else bar for bar in placed]
    return [] if len(noted) == 1 and noted[0].note in {"", DID_NOT_END} else noted


def _bar(report: Report, span: PhaseSpan, along: Axis) -> Bar:
    ended = report.ended if span.ended is None else span.ended
    lasted = _within(ended - span.began, 0.0, SECONDS_MAX)
    stuck = span.ended is None and span.phase != Phase.SERVING and report.outcome != Outcome.SERVING
    offset = _within((span.began - along.began) / along.whole, 0.0, 1.0)
    return Bar(span.phase, lasted, offset, min(lasted / along.whole, 1.0 - offset), stuck)


def _within(value: float, least: float, most: float) -> float:
    return max(least, min(value, most))


def _unfinished(report: Report, bar: Bar) -> str:
    """ "did not end", and on which ranks if it did on others."""
    inside = [span for span in report.timeline if span.phase == bar.phase and span.rank >= 0]
    still = {span.rank for span in inside if span.ended is None}
    if not still or still == {span.rank for span in inside}:
        return DID_NOT_END
    return f"{DID_NOT_END} on {'rank' if len(still) == 1 else 'ranks'} {spans(still)}"


def lanes(report: Report) -> list[Lane]:
    """Ranks in their order, then processes without one; those that findings are about stand first."""
    along = axis(report)
    phases: defaultdict[tuple[int, str], list[PhaseSpan]] = defaultdict(list)
    for span in report.timeline:
        phases[span.rank, span.source].append(span)
    series: defaultdict[tuple[int, str], list[Strip]] = defaultdict(list)
    for strip in report.strips:
        if strip.what in SERIES_ORDER and strip.values and strip.step_s > 0:
            series[_owner(strip, phases)].append(strip)
    blamed = _blamed_ranks(report)
    keys = sorted({*phases, *series}, key=lambda key: (key[0] not in blamed, key[0] < 0, key))
    return [
        Lane(
            name=_name(*key),
            rank=key[0],
            bars=tuple(_bar(report, span, along) for span in sorted(phases[key], key=lambda span: span.began)),
            strips=tuple(sorted(series[key], key=lambda strip: SERIES_ORDER.index(strip.what))),
        )
        for key in keys[:LANES_MAX]
        if key != (-1, "") or series[key]
    ]


def _owner(strip: Strip, phases: dict[tuple[int, str], list[PhaseSpan]]) -> tuple[int, str]:
    """The lane of a series. The log may call a rank otherwise than its process does: then the number tells."""
    if strip.rank >= 0 and (strip.rank, strip.source) not in phases:
        called = [key for key in phases if key[0] == strip.rank]
        if len(called) == 1:
            return called[0]
    return strip.rank, strip.source


def _blamed_ranks(report: Report) -> set[int]:
    pids = {finding.pids[0] for finding in report.findings if finding.pids}
    return {process.rank for process in report.processes if process.pid in pids and process.rank >= 0}


def _name(rank: int, source: str) -> str:
    return f"rank {rank}" if rank >= 0 else printable(source, 40) or "server"


def tops(found: list[Lane]) -> dict[str, float]:
    """The upper end of the scale of each kind of series, the same for all lanes, so that they compare."""
    top = {"cpu": 1.0, "io": 1.0, "gpu": 100.0}
    for lane in found:
        for strip in lane.strips:
            top[strip.what] = min(max(top[strip.what], *strip.values), VALUE_MAX)
    return top


def resampled(strip: Strip, along: Axis, columns: int) -> list[float]:
    """The series on the time axis, as the mean in each of so many columns; -1 where nothing was measured."""
    sums, counts = [0.0] * columns, [0] * columns
    per_column = along.whole / columns
    offset = _within(strip.began - along.began, -SECONDS_MAX, SECONDS_MAX)
    step_s = min(strip.step_s, SECONDS_MAX)
    for index, value in enumerate(strip.values):
        begin = (offset + index * step_s) / per_column
        end = begin + step_s / per_column
        if value < 0 or end <= 0 or begin >= columns:
            continue
        for column in range(max(0, int(begin)), min(columns, max(int(begin) + 1, round(end)))):
            sums[column] += min(value, VALUE_MAX)
            counts[column] += 1
    return [total / count if count else -1.0 for total, count in zip(sums, counts, strict=True)]


def blocks(values: list[float], top: float) -> str:
    """A series as block characters; a dot for nothing at all, a blank where nothing was measured."""
    return "".join(_block(value, top) for value in values).rstrip()


def _block(value: float, top: float) -> str:
    if value <= 0:
        return "·" if value == 0 else " "
    highest = len(_BLOCKS) - 1
    return _BLOCKS[min(highest, round(value / top * highest))]


def most_words(strip: Strip) -> str:
    """The highest value of a series, with its unit."""
    most = max(strip.values)
    if most < 0:
        return "not measured"
    if strip.what == "cpu":
        return f"{most:.1f} {'core' if most == 1 else 'cores'}"
    return f"{size(most)}/s" if strip.what == "io" else f"{most:.0f} %"


def strip_lines(report: Report, columns: int, most: int = 4) -> list[str]:
    """The series of the first `most` lanes as text, under bars whose names take 28 columns."""
    found = [lane for lane in lanes(report) if lane.strips]
    along, top = axis(report), tops(found)
    lines = [
        f"{SERIES_NAMES[strip.what]} {lane.name}"[:16].ljust(16)
        + f"{most_words(strip):>10}  {blocks(resampled(strip, along, columns), top[strip.what])}"
        for lane in found[:most]
        for strip in lane.strips
    ]
    rest = len(found) - most
    return [*lines, f"and {rest} more, in the HTML report"] if rest > 0 else lines
