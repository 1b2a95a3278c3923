"""One trial: a setting launched and watched, cut short as soon as it is known what it comes to.

It is an attempt like any other, with a run of its own that `firstlight report` shows. A stall ends it when its
signature is the known one, a server that comes up when its first token is verified.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from firstlight.attempt import Interrupts, Observer, OnStall, Options, Scene, Stay, start
from firstlight.clock import Clock
from firstlight.core.events import Event, ProcessAppeared, Started, Stopped
from firstlight.core.graph import Signature
from firstlight.core.process import ProcessId
from firstlight.core.record import Record
from firstlight.core.report import Finding, Report
from firstlight.core.server import ServerCommand
from firstlight.core.view import LiveView
from firstlight.core.vocabulary import Certainty, Phase
from firstlight.core.vocabulary import Outcome as End
from firstlight.isolate.problem import Outcome

GRACE_S = 5.0
EARLY = frozenset({Phase.SPAWN, Phase.IMPORT, Phase.CONFIG})
REFUSED_WITHIN_S = 60.0
"""Engines import for half a minute before they look at their options."""
USAGE_CODE = 2
DEATHS = frozenset({"process_died", "rank_died", "program_failed"})
"""Findings that any two failures share."""
_NUMBER = re.compile(r"\d+")
_USAGE = re.compile(
    r"\berror: (?:unrecognized arguments|argument |the following arguments are required|invalid choice)"
)


class Trial(Record, tag_field="type", tag="trial"):
    """What became of one launch. `setting` are the switches that were left on, `levels` those that were weakened and
    how far, `scene` the names of what made it smaller. `caches`: "cold" if they were its own and empty, else "warm".
    `what` says in one sentence how it ended, `report` is the file that tells all. `findings` are the established ones
    of a failure that is no stall. `late` if it ran into its deadline.
    """

    number: int
    setting: tuple[str, ...]
    why: str
    outcome: Outcome
    what: str
    seconds: float
    run: str
    report: str
    levels: tuple[tuple[str, int], ...] = ()
    scene: tuple[str, ...] = ()
    signature: Signature | None = None
    caches: str = "warm"
    findings: tuple[Finding, ...] = ()
    late: bool = False


@dataclass
class Launched:
    """What an attempt told while it was followed; the observer of a trial, which hands everything on to `shown`.
    `started` is told of the server's first process."""

    shown: Observer
    started: Callable[[ProcessId], None] = lambda first: None
    folder: str = ""
    server: int = 0
    processes: dict[ProcessId, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()

    def event(self, event: Event) -> None:
        if isinstance(event, Started):
            self.folder, self.server = event.folder, event.pid
        elif isinstance(event, ProcessAppeared):
            self.processes[event.process.id] = event.process.name
            if event.process.id.pid == self.server:
                self.started(event.process.id)
        elif isinstance(event, Stopped):
            self.left = event.left
        self.shown.event(event)

    def tick(self, view: LiveView) -> None:
        self.shown.tick(view)


def launch(
    command: ServerCommand,
    environ: Mapping[str, str],
    *,
    known: Signature | None,
    deadline_s: float,
    launched: Launched,
    clock: Clock,
    interrupts: Interrupts,
) -> Report:
    """Launch a command and follow it to its end. `known` is the stall that it is expected to show."""
    options = Options(
        stay=Stay.ONCE,
        on_stall=OnStall.STOP,
        deadline_s=deadline_s,
        max_tokens=1,
        canary_s=0.0,
        grace_s=GRACE_S,
        known_stall=known,
    )
    return start(command, Scene(options, launched, clock, interrupts), environ)


def outcome_of(report: Report, known: Report | None) -> Outcome:
    """What a report says of the question. Without a `known` stall, the first that shows is the one in question."""
    if report.outcome is End.SERVING:
        return Outcome.UP
    if report.outcome is End.STALLED:
        return Outcome.SAME if report.signature and (known is None or _is_same(report, known)) else Outcome.OTHER
    if report.outcome is End.NOT_STARTED or _refused_its_options(report):
        return Outcome.NOT_STARTED
    return Outcome.OTHER


def fails_like(one: Trial, other: Trial) -> bool:
    """Whether two failures that are no stalls are the same: of the same established cause, or in the same words."""
    if (one.outcome, other.outcome) != (Outcome.OTHER, Outcome.OTHER):
        return False
    causes = {finding.id for finding in one.findings} & {finding.id for finding in other.findings}
    return bool(causes - DEATHS) or _NUMBER.sub("", one.what) == _NUMBER.sub("", other.what)


def established(report: Report) -> tuple[Finding, ...]:
    """The findings that are certain."""
    return tuple(finding for finding in report.findings if finding.verdict == Certainty.ESTABLISHED)


def _is_same(report: Report, known: Report) -> bool:
    """Whether two stalls are the same: who waits where is, or they stall in the same phase of the same established
    cause. With other options the others may wait for it in other places."""
    if report.signature is None or known.signature is None:
        return False
    if report.signature.digest == known.signature.digest:
        return True
    return report.phase is known.phase and bool(_causes(report) & _causes(known))


def _causes(report: Report) -> set[str]:
    return {finding.id for finding in established(report)}


def _refused_its_options(report: Report) -> bool:
    """Whether the server ended at once because its command line made no sense to it."""
    if report.outcome is not End.EXITED or report.phase not in EARLY:
        return False
    if report.ended - report.started > REFUSED_WITHIN_S:
        return False
    codes = {exit_.code for exit_ in report.exits if exit_.id.pid == report.server}
    return USAGE_CODE in codes or any(_USAGE.search(line.text) for line in report.log_tail)
