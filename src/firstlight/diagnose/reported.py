"""A bundle's diagnosis as a report: what it says of itself and what was made of it. Pure."""

from firstlight.core.bundle import Bundle
from firstlight.core.process import ProcessId
from firstlight.core.report import Report
from firstlight.core.vocabulary import Motion, Outcome
from firstlight.diagnose.environment import environment
from firstlight.diagnose.logwords import first_error, last_lines
from firstlight.diagnose.statement import state

QUIET_OUTCOMES = frozenset({Outcome.STALLED, Outcome.DEADLINE})


def reported(bundle: Bundle, *, outcome: Outcome | None = None, root: ProcessId | None = None) -> Report:
    """The report of a bundle. `outcome` is known to whoever followed the server to its end; without it the bundle
    tells whether it was stalled, and anything else was only looked at."""
    outcome = outcome or (Outcome.STALLED if bundle.motion is Motion.STALLED else Outcome.LOOKED)
    statement = state(bundle, root=root, stalled=outcome is Outcome.STALLED)
    return Report(
        run=bundle.run,
        outcome=outcome,
        headline=statement.headline,
        engine=bundle.engine,
        engine_version=bundle.engine_version,
        command=bundle.command,
        started=bundle.started or min((span.began for span in bundle.timeline), default=bundle.at),
        ended=bundle.at,
        phase=bundle.phase,
        quiet_since=bundle.quiet_since if outcome in QUIET_OUTCOMES else None,
        timeline=bundle.timeline,
        processes=statement.processes,
        exits=bundle.exits,
        findings=statement.findings,
        gaps=statement.gaps,
        first_error=first_error(bundle),
        log_tail=last_lines(bundle),
        next_steps=statement.next_steps,
        environment=environment(bundle),
        weighed=statement.weighed,
        graph=statement.graph,
        tree=statement.tree,
        signature=statement.signature,
        hosts=bundle.hosts,
    )
