"""In which order the switches are suspected: first what was found, then what is known, then what is likely. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from firstlight.core.record import Record
from firstlight.core.report import Finding
from firstlight.core.vocabulary import Certainty
from firstlight.isolate.problem import Space, Switch

NAMED = (Certainty.ESTABLISHED, Certainty.SUPPORTED, Certainty.OPEN)
"""Findings count in this order."""
PHASE_WEIGHT = 5
"""That a switch acts in the phase of the stall says more than half of what the table's author thinks of it."""


class Order(Record):
    """All switches that can be flipped, most suspicious first. The first `suspects` of them are named by evidence;
    `why` says for each of those by which."""

    names: tuple[str, ...]
    suspects: int = 0
    why: tuple[tuple[str, str], ...] = ()


def order_of(space: Space, findings: Sequence[Finding] = (), phase: str = "") -> Order:
    """The order for a stall in a phase with these findings; without them only the table's priors count.

    What a switch needs stands before it, so that a beginning of the order is a command that makes sense.
    """
    switches = [space.switch(name) for name in space.names]
    likely = sorted(switches, key=lambda one: _likely(one, phase), reverse=True)
    why: dict[str, str] = {}
    for name, reason in (*_found(likely, findings), *_conflicting(switches)):
        why.setdefault(name, reason)
    suspects = _with_needs(space, why)
    names = _with_needs(space, [*suspects, *(one.name for one in likely)])
    reasons = tuple((name, why.get(name, "needed by a suspect")) for name in suspects)
    return Order(names=tuple(names), suspects=len(suspects), why=reasons)


def _found(likely: Sequence[Switch], findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """Switches that a finding makes suspects, by how sure it is, in the order of the report."""
    for certainty in NAMED:
        for finding in findings:
            if finding.verdict == certainty:
                reason = f"{certainty}: {finding.title}"
                yield from ((one.name, reason) for one in likely if finding.id in one.suspects)


def _conflicting(switches: Sequence[Switch]) -> Iterator[tuple[str, str]]:
    """Those that are known not to go well together, and were given together."""
    names = {one.name for one in switches}
    for one in switches:
        for other in one.conflicts:
            if other in names:
                yield one.name, f"known not to go well with {other}"
                yield other, f"known not to go well with {one.name}"


def _likely(switch: Switch, phase: str) -> int:
    return switch.prior + (PHASE_WEIGHT if phase and phase in switch.phases else 0)


def _with_needs(space: Space, names: Iterable[str]) -> list[str]:
    """The names in their order, each after those that it needs."""
    placed: dict[str, None] = {}

    def place(name: str, above: frozenset[str]) -> None:
        if name not in placed and name not in above:
            for needed in space.switch(name).needs:
                if needed in flippable:
                    place(needed, above | {name})
            placed[name] = None

    flippable = set(space.names)
    for name in names:
        place(name, frozenset())
    return list(placed)
