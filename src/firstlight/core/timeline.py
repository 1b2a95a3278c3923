"""The timeline of a whole server, made from the timelines of its processes."""

from collections.abc import Iterable

from firstlight.core.log import PhaseSpan

TOGETHER_S = 0.5
"""Spans of the same phase with no more than this between them are one."""


def merged(spans: Iterable[PhaseSpan]) -> tuple[PhaseSpan, ...]:
    """One span for each time that the server as a whole went through a phase, in order of their beginning.

    Eight ranks that load weights side by side are one span, from the first that began to the last that ended; weights
    that are loaded again later (a drafter's) are another. `source` is the only source's, or empty.
    """
    whole: list[PhaseSpan] = []
    latest: dict[str, int] = {}
    for span in sorted(spans, key=lambda span: span.began):
        index = latest.get(span.phase)
        if index is not None and _together(whole[index], span):
            whole[index] = _joined(whole[index], span)
        else:
            latest[span.phase] = len(whole)
            whole.append(span)
    return tuple(whole)


def _together(first: PhaseSpan, second: PhaseSpan) -> bool:
    return first.ended is None or second.began <= first.ended + TOGETHER_S


def _joined(first: PhaseSpan, second: PhaseSpan) -> PhaseSpan:
    same = first.source == second.source
    return PhaseSpan(
        phase=first.phase,
        source=first.source if same else "",
        began=first.began,
        ended=None if first.ended is None or second.ended is None else max(first.ended, second.ended),
        rank=first.rank if same else -1,
    )
