"""A run as a screen shows it. Pure: from what the watcher knows, a record."""

from firstlight.core.view import LiveView
from firstlight.supervise.watch import Watch

LAST_LOG_CHARACTERS = 300


def view_of(watch: Watch, run: str, *, now: float, looking: bool) -> LiveView:
    """The whole screen; `now` is wall time, `looking` whether a look is under way."""
    judgement, phases, lines = watch.judgement, watch.phases, watch.log.lines
    return LiveView(
        run=run,
        engine=watch.profile.name,
        engine_version=phases.version,
        url=watch.url,
        phase=phases.phase,
        motion=judgement.motion,
        why=judgement.why,
        elapsed_s=watch.stamp.elapsed_s,
        quiet_s=judgement.quiet_s,
        threshold_s=judgement.threshold_s,
        timeline=phases.timeline,
        rows=watch.rows.all,
        now=now,
        last_log=lines[-1].text[:LAST_LOG_CHARACTERS] if lines else "",
        counter=phases.counter,
        eta_s=phases.eta_s(now),
        in_flight=watch.in_flight if isinstance(watch.in_flight, int) else None,
        looking=looking,
        asleep=judgement.asleep,
    )
