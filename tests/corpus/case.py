"""A public report as a case: the bundle that such a machine would have given, and what may be said of it.

Every module of this folder that holds `CASES` adds to the corpus, and so does each lot in lots/, whose cases were
written before anybody looked at their causes. A case is built from the facts of a report in own words; names of
machines, pids, paths and models are made up. `bundle` has realistic surroundings, so that causes face noise. Where
what decides was in sight, `twin` is the same stall without it: there nothing may be established.
"""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from firstlight.core.bundle import Bundle
from firstlight.core.report import Finding
from firstlight.core.vocabulary import Certainty
from firstlight.diagnose.causes import all_causes
from firstlight.diagnose.scene import scene_of
from firstlight.diagnose.weigh import weigh

UNKNOWN = "unknown"


class Case(NamedTuple):
    """One report.

    `cause` is its class, "unknown" if nobody found out. `shows` says in a few words what the bundle holds that points
    to the class; empty where the report holds nothing that would, and then `lacks` says what would have decided.
    `companions` are causes that are true beside it.
    """

    id: str
    url: str
    cause: str
    bundle: Bundle
    shows: str = ""
    lacks: str = ""
    twin: Bundle | None = None
    companions: frozenset[str] = frozenset()

    @property
    def decided(self) -> bool:
        return bool(self.shows)


class FirstRun(NamedTuple):
    """What came of a lot of cases, written before anybody looked at their causes, when it was run for the first time:
    cases whose cause was in sight, by what was said, and the others. `wrong` are causes established wrongly, `false`
    cases that should have been unknown and had a cause supported."""

    established: int
    supported: int
    missed: int
    undecided: int
    wrong: int = 0
    false: int = 0

    @property
    def figures(self) -> tuple[int, ...]:
        decided = self.established + self.supported + self.missed
        unknown = self.undecided - self.false
        return (
            decided + self.undecided, decided, self.established, self.supported, self.missed, self.undecided, unknown,
            self.wrong, self.false,
        )  # fmt: skip


class Outcome(NamedTuple):
    """What firstlight says of a bundle: causes by certainty."""

    established: frozenset[str]
    supported: frozenset[str]
    open: frozenset[str]


def outcome(bundle: Bundle) -> Outcome:
    """Weigh every cause."""
    findings = weigh(scene_of(bundle), all_causes()).findings
    return Outcome(*(_ids(findings, word) for word in (Certainty.ESTABLISHED, Certainty.SUPPORTED, Certainty.OPEN)))


def _ids(findings: tuple[Finding, ...], word: Certainty) -> frozenset[str]:
    return frozenset(one.id for one in findings if one.verdict == word)


@cache
def symptoms() -> frozenset[str]:
    """Causes that only say where it shows: they may be said of any stall."""
    return frozenset(cause.id for cause in all_causes() if not cause.nature.explains)


def wrong(case: Case, said: Outcome) -> frozenset[str]:
    """Causes that were said and should not have been: established ones that are not true, and of an undecided case
    every cause."""
    true = case.companions | symptoms()
    if case.decided:
        return said.established - true - {case.cause}
    return (said.established | said.supported) - true


def right(case: Case, said: Outcome) -> bool:
    """Whether the cause of a decided case was said, or nothing of an undecided one."""
    named = said.established | said.supported
    return case.cause in named if case.decided else not wrong(case, said)


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case, by its id."""
    return tuple(sorted(_cases(), key=lambda case: case.id))


def _cases() -> Iterator[Case]:
    here = Path(__file__).parent
    for path in sorted(here.glob("*.py")):
        if not path.name.startswith(("test_", "__", "case")):
            yield from getattr(import_module(f"{__package__}.{path.stem}"), "CASES", ())
    for path in sorted(here.glob("lots/*/cases.py")):
        yield from import_module(f"{__package__}.lots.{path.parent.name}.cases").CASES
