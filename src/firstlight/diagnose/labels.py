"""Ranks and labels of several machines, so that no two are the same. Pure."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from firstlight.core.bundle import Bundle, LogTail
from firstlight.core.log import LogLine, PhaseSpan
from firstlight.core.look import Look
from firstlight.core.process import Exit


def global_ranks(bundles: list[Bundle]) -> list[Bundle]:
    """Ranks that each machine counts from 0 become ranks of the whole."""
    own = [_ranks(one) for one in bundles]
    if all(a.isdisjoint(b) for at, a in enumerate(own) for b in own[:at]):
        return bundles
    width = max([one.ranks for one in bundles] + [max(ranks, default=-1) + 1 for ranks in own])
    return [_named(one, lambda label: label, width * node) for node, one in enumerate(bundles)]


def _ranks(bundle: Bundle) -> set[int]:
    looks = (one.process.rank for look in bundle.looks for one in look.processes)
    return {rank for rank in (*looks, *(gone.rank for gone in bundle.exits)) if rank >= 0}


def own_labels(bundles: list[Bundle], hosts: Sequence[str]) -> list[Bundle]:
    """Labels that several machines use say whose they are: a line of the log belongs to one of them."""
    used = Counter(label for one in bundles for label in _labels(one))
    return [
        _named(one, lambda label, host=host: f"{label} on {host}" if used[label] > 1 else label, 0)  # type: ignore[misc]
        for one, host in zip(bundles, hosts, strict=True)
    ]


def _labels(bundle: Bundle) -> set[str]:
    looks = (one.process.label for look in bundle.looks for one in look.processes)
    return {*looks, *(tail.source for tail in bundle.logs), *(gone.label for gone in bundle.exits)} - {""}


def _named(bundle: Bundle, name: Callable[[str], str], by: int) -> Bundle:
    """The bundle with labels and sources put through `name`, and ranks moved up by `by`."""
    replace = msgspec.structs.replace

    def line(one: LogLine) -> LogLine:
        return replace(one, source=name(one.source), rank=one.rank + by if one.rank >= 0 else one.rank)

    def tail(one: LogTail) -> LogTail:
        error = line(one.first_error) if one.first_error else None
        lines, warnings = tuple(map(line, one.lines)), tuple(map(line, one.warnings))
        return replace(one, source=name(one.source), lines=lines, first_error=error, warnings=warnings)

    def someone(one: Any) -> Any:
        return replace(one, label=name(one.label), rank=one.rank + by if one.rank >= 0 else one.rank)

    def span(one: PhaseSpan) -> PhaseSpan:
        return replace(one, source=name(one.source), rank=one.rank + by if one.rank >= 0 else one.rank)

    def look(one: Look) -> Look:
        seen = tuple(replace(each, process=someone(each.process)) for each in one.processes)
        return replace(one, processes=seen)

    exits: tuple[Exit, ...] = tuple(map(someone, bundle.exits))
    return replace(
        bundle,
        looks=tuple(map(look, bundle.looks)),
        exits=exits,
        logs=tuple(map(tail, bundle.logs)),
        timeline=tuple(map(span, bundle.timeline)),
    )
