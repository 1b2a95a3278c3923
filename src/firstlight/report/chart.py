"""The timeline of the HTML report: bars of the phases, a lane for each rank, sparklines under it."""

from html import escape
from itertools import groupby

from firstlight.core.graph import Strip
from firstlight.core.report import Report
from firstlight.core.vocabulary import Phase
from firstlight.core.words import printable, seconds, time_of_day
from firstlight.report import timeline
from firstlight.report.timeline import Axis, Bar, Lane

POINTS = 120
"""Of a sparkline, at most."""
HEIGHT = 20
SHOWN_LANES = 8
COLOURS = 6
_NUMBER = {phase: number for number, phase in enumerate(Phase)}


def phases(report: Report) -> str:
    """The phases of the server as a whole, one a row."""
    return "".join(
        f'<div class="phase{" stuck" if bar.stuck else ""}"><span>{bar.phase}</span>'
        f"<span>{seconds(bar.seconds)}{f', {bar.note}' if bar.note else ''}</span>"
        f'<div class="track">{_piece(bar)}</div></div>\n'
        for bar in timeline.bars(report)
    )


def lanes(report: Report) -> str:
    """A lane for each rank; those beyond the first few are folded away."""
    found = timeline.lanes(report)
    if len(found) < 2 and not any(lane.strips for lane in found):
        return ""
    along, tops = timeline.axis(report), timeline.tops(found)
    drawn = [_lane(lane, along, tops) for lane in found]
    times = f"<span>{time_of_day(along.began)}</span><span>{time_of_day(along.began + along.whole)}</span>"
    more = len(drawn) - SHOWN_LANES
    rest = f"<details><summary>{more} more</summary>\n{''.join(drawn[SHOWN_LANES:])}</details>" if more > 0 else ""
    return (
        f'<h3>Rank by rank</h3>\n<div class="lanes"><div class="times">{times}</div>\n'
        f"{''.join(drawn[:SHOWN_LANES])}{rest}</div>\n"
    )


def _lane(lane: Lane, along: Axis, tops: dict[str, float]) -> str:
    last = lane.bars[-1] if lane.bars else None
    state = f"{last.phase}{', did not end' if last.stuck else ''}" if last else ""
    track = f'<div class="track">{"".join(map(_piece, lane.bars))}</div>' if lane.bars else "<span></span>"
    series = "".join(_series(strip, along, tops[strip.what]) for strip in lane.strips)
    return (
        f'<div class="lane"><b>{escape(lane.name)}</b>{track}'
        f"<span{' class=late' if last and last.stuck else ''}>{state}</span>{series}</div>\n"
    )


def _piece(bar: Bar) -> str:
    kind = "late" if bar.stuck else f"p{_NUMBER[bar.phase] % COLOURS}"
    words = f"{bar.phase}, {seconds(bar.seconds)}{', did not end' if bar.stuck else ''}"
    return f'<i class="{kind}" title="{words}" style="left:{bar.offset:.2%};width:{bar.share:.2%}"></i>'


def _series(strip: Strip, along: Axis, top: float) -> str:
    values = timeline.resampled(strip, along, POINTS)
    name = timeline.SERIES_NAMES[strip.what]
    most = timeline.most_words(strip)
    words = escape(f"{name} of {printable(strip.source, 60)}, at most {most}")
    return (
        f"<span>{name}</span>"
        f'<svg class="spark {strip.what}" role="img" viewBox="0 0 {POINTS} {HEIGHT}" preserveAspectRatio="none">'
        f'<title>{words}</title><path d="{_area(values, top)}"/></svg><span>{most}</span>'
    )


def _area(values: list[float], top: float) -> str:
    """The outline of a series, one closed area for each run of measured columns."""
    pieces = []
    for measured, run in groupby(enumerate(values), key=lambda item: item[1] >= 0):
        if measured:
            columns = list(run)
            steps = "".join(f"V{HEIGHT - _height(value, top)}h1" for _, value in columns)
            pieces.append(f"M{columns[0][0]} {HEIGHT}{steps}V{HEIGHT}z")
    return "".join(pieces)


def _height(value: float, top: float) -> int:
    """Pixels above the ground; one for what is almost nothing."""
    return max(1, round(min(1.0, value / top) * (HEIGHT - 1))) if value > 0 else 0
