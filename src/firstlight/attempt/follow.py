"""The loop that follows one server to its verdict, and beyond it while the user wants to stay."""

import traceback
from collections.abc import Sequence

import msgspec

from firstlight.attempt import known_stall
from firstlight.attempt.bundles import bundle_of
from firstlight.attempt.ending import Ending
from firstlight.attempt.known_stall import KnownStall
from firstlight.attempt.last_looks import LATE_WHY, LastLooks, after_the_end
from firstlight.attempt.looker import Looker, TwoLooks
from firstlight.attempt.looking import Looking, confirmation
from firstlight.attempt.options import OnStall, Stay
from firstlight.attempt.scene import Scene
from firstlight.attempt.state import KeptState
from firstlight.attempt.verdict import report_of, with_step, without_secrets
from firstlight.attempt.view import view_of
from firstlight.core.bundle import Bundle
from firstlight.core.events import Event, GapNoted, LogSeen, Looked, Stopped, Stopping, TokenVerified, Verdict
from firstlight.core.gap import Gap
from firstlight.core.graph import Signature
from firstlight.core.report import FirstToken, Report
from firstlight.core.vocabulary import GapReason, Motion, Outcome
from firstlight.diagnose import reported
from firstlight.supervise.runs.folders import RunFolder
from firstlight.supervise.runs.journal import Journal, redacted_json
from firstlight.supervise.watch import Watch

TICK_S = 0.25
VIEW_EVERY_S = 1.0
FAILURES_MAX = 40
"""Rounds that may fail one after the other, some ten seconds; then watching is given up."""


class Attempt:
    """One server followed. `run` returns the final report."""

    def __init__(self, watch: Watch, ending: Ending, folder: RunFolder, scene: Scene) -> None:
        self.watch = watch
        self._ending = ending
        self._folder = folder
        self._journal = Journal(folder)
        self._state = KeptState(watch, folder, scene.clock)
        self._observer = scene.observer
        self._options = scene.options
        self._clock = scene.clock
        self._interrupts = scene.interrupts
        looker = Looker(
            lambda: tuple(watch.processes.values()),
            watch.target.root.pid,
            watch.command,
            watch.target.environ,
            watch.started_wall,
            scene.clock,
            dumps=folder.dumps,
        )
        self._host = looker.host()
        self._looking = Looking(looker, apart_s=scene.options.look_apart_s)
        self._last_looks = LastLooks(watch, self._looking, scene.clock)
        self._looks: TwoLooks | None = None
        self._known = KnownStall(scene.options.known_stall)
        self._bundles = 0
        self._token: FirstToken | None = None
        self._said: Outcome | None = None
        self._next_view = 0.0
        self._gaps: list[Gap] = []
        self._looked_at = float("-inf")
        self._heeded = 0
        self._failures = 0
        self._last: Report | None = None

    def run(self) -> Report:
        """Follow the server until there is nothing more to follow, or the user wants no more."""
        while True:
            outcome = self._step()
            if outcome is not None:
                return self._end(outcome)
            self._clock.sleep(TICK_S)

    def _step(self) -> Outcome | None:
        """One round of watching and deciding. A bug of ours in it is noted, and must not cost a server its life."""
        try:
            self.publish(self.watch.tick())
            self._look_if_wanted()
            outcome = self._final_outcome()
            self._show()
        except Exception as error:
            self._failures += 1
            if self._failures >= FAILURES_MAX:
                self._state.write(Outcome.NOT_LOOKED, self._token)
                raise
            self._note(_own_fault(error))
            return Outcome.INTERRUPTED if self._interrupts.count else None
        self._failures = 0
        return outcome

    def _note(self, gap: Gap) -> None:
        if gap not in self._gaps:
            self._gaps.append(gap)
            self.publish([GapNoted(**self.watch.stamp(), gap=gap)])

    def publish(self, events: Sequence[Event]) -> None:
        """To the journal and to whoever watches. What the journal could not write is told before a verdict, the last
        word of all.
        """
        for event in events:
            if isinstance(event, TokenVerified):
                self._token = event.token
                self.watch.learn()
            if not isinstance(event, LogSeen) or event.notable:
                self._journal.write(event)
            for gap in self._journal.take_gaps():
                self._gaps.append(gap)
                self._observer.event(GapNoted(**self.watch.stamp(), gap=gap))
            self._observer.event(event)

    # Looking deeper

    def _look_if_wanted(self) -> None:
        if self.watch.judgement.wants_look:
            self._looking.begin(self.watch.judgement.why, self.watch.port)
        elif self._known.wants_look(self.watch.judgement, self.watch.phases.phase, self._clock.monotonic()):
            self._looking.begin(known_stall.WHY, self.watch.port, known_stall.APART_S)
        looks = self._looking.poll()
        if self._looking.failure is not None:
            self._note(self._looking.failure)
        if looks is None:
            if self._looks and not self._looking.running and self.watch.judgement.motion == Motion.MOVING:
                self._looks = None  # what they showed is over
            return
        self._looks, self._looked_at = looks, self._clock.monotonic()
        self.publish([Looked(**self.watch.stamp(), why=looks.why, took_s=round(looks.took_s, 3), bundle="")])
        if looks.why == LATE_WHY:
            return  # they are for the report; the outcome stands
        shown = confirmation(looks)
        now = self._clock.monotonic()
        self._known.take(looks.difference, shown.sleeps, self.watch.judgement, now, self._signature)
        if looks.why != known_stall.WHY:
            self.publish(self.watch.confirm(shown))

    def _signature(self) -> Signature | None:
        """What the latest looks would be known by if the server had stalled."""
        return reported(self._bundle(self._looks), outcome=Outcome.STALLED, root=self.watch.target.root).signature

    # Deciding

    def _final_outcome(self) -> Outcome | None:
        """The outcome that ends the attempt, or None to go on. One that does not end it is published."""
        if self._interrupts.count:
            return self._said or (Outcome.SERVING if self.watch.serving else Outcome.INTERRUPTED)
        outcome = self._outcome()
        if outcome is not None and self._ends(outcome):
            return outcome
        if outcome is not None and outcome != self._said:
            self.publish([Verdict(**self.watch.stamp(), report=self._report(outcome))])
        self._said = outcome
        return None

    def _outcome(self) -> Outcome | None:
        if self.watch.gone:
            return Outcome.EXITED if self._last_looks.orphans_seen(self._looks) else None
        if self._known.seen:
            return Outcome.STALLED
        if self.watch.judgement.motion == Motion.STALLED and (self._late or self._options.on_stall != OnStall.WAIT):
            return Outcome.STALLED
        if self.watch.serving and not self._late:
            return None if self.watch.questions.completing else Outcome.SERVING
        if self.watch.questions.first.final:
            return Outcome.NOT_LOOKED
        return (
            Outcome.DEADLINE if self._late and self._last_looks.late_one_seen(self._looks, self._looked_at) else None
        )

    @property
    def _late(self) -> bool:
        """Whether the user's deadline has passed without a first token. One during the last look comes too late."""
        if self._last_looks.late:
            return True
        deadline_s = self._options.deadline_s
        return bool(deadline_s) and not self.watch.serving and self.watch.stamp.elapsed_s >= deadline_s

    def _ends(self, outcome: Outcome) -> bool:
        if outcome == Outcome.EXITED or self._late:
            return True
        if outcome == Outcome.STALLED and self._options.on_stall == OnStall.STOP:
            return True
        return self._options.stay != Stay.STAY

    def _report(self, outcome: Outcome) -> Report:
        """The report of `outcome`; the one already made where nothing has changed since."""
        if self._last is not None and self._last.outcome == outcome == self._said:
            return msgspec.structs.replace(self._last, ended=self._clock.wall())
        looks = self._looks if outcome != Outcome.EXITED or after_the_end(self._looks) else None
        if outcome == Outcome.SERVING:
            looks = None  # taken while it was slow; it has come up since
        bundle = self._bundle(looks)
        path = self._write_bundle(bundle) if outcome not in {Outcome.SERVING, Outcome.INTERRUPTED} else ""
        self._last = without_secrets(report_of(self.watch, bundle, outcome, token=self._token, bundle_path=path))
        return self._last

    def _bundle(self, looks: TwoLooks | None) -> Bundle:
        return bundle_of(self.watch, self._folder.id, self._host, looks, tuple(self._gaps))

    def _write_bundle(self, bundle: Bundle) -> str:
        self._bundles += 1
        return self._folder.write(f"bundle-{self._bundles}.json", redacted_json(bundle))

    # Ending

    def _end(self, outcome: Outcome) -> Report:
        """Stop or release the server, then say the verdict as the last event.

        A server that ended by itself has its last words still on the way; they are waited for before the report.
        """
        kept = self._options.stay == Stay.KEEP and not self._interrupts.count and outcome != Outcome.EXITED
        report = None if outcome == Outcome.EXITED else self._report(outcome)
        if kept:
            kept = self._ending.release()
            if not kept:
                self._note(_NOT_KEPT)
        elif not self.watch.attached:
            self._stop(outcome)
        report = report or self._report(outcome)
        if kept or (self.watch.attached and outcome != Outcome.EXITED):
            report = with_step(
                report,
                f"The server runs on: `firstlight attach {report.server}` watches it, `kill {report.server}` ends it",
            )
        self._folder.write("report.json", redacted_json(report))
        self.publish([Verdict(**self.watch.stamp(), report=report)])
        self._state.write(report.outcome, self._token)
        self._journal.close()
        return report

    def _stop(self, outcome: Outcome) -> None:
        self.publish([Stopping(**self.watch.stamp(), why=str(outcome))])
        self._state.write(outcome, self._token)
        self._heeded = min(self._interrupts.count, 1)
        result = self._ending.stop(self._options.grace_s, lambda: self._while_ending(outcome))
        self.publish(list(self.watch.log.drain()))
        self.publish([Stopped(**self.watch.stamp(), asked=result.asked, killed=result.killed, left=result.left)])

    def _while_ending(self, outcome: Outcome) -> None:
        """A server that takes its time to end is not one that nobody watches; one more Ctrl-C, and it gets none."""
        if self._interrupts.count > self._heeded:
            self._heeded = self._interrupts.count
            self._ending.hurry()
        if self._clock.monotonic() >= self._next_view:
            self._next_view = self._clock.monotonic() + VIEW_EVERY_S
            self._observer.tick(view_of(self.watch, self._folder.id, now=self._clock.wall(), looking=False))
            self._state.write(outcome, self._token)

    # Showing

    def _show(self) -> None:
        if self._clock.monotonic() < self._next_view:
            return
        self._next_view = self._clock.monotonic() + VIEW_EVERY_S
        self._ending.tend(self.watch.processes.values())
        looking = self._looking.running
        self._observer.tick(view_of(self.watch, self._folder.id, now=self._clock.wall(), looking=looking))
        self._state.write(None, self._token)


_NOT_KEPT = Gap(
    what="leaving the server running",
    reason=GapReason.FAILED,
    detail="nobody could be found to keep its log; it will end when it next writes to it",
)


def _own_fault(error: Exception) -> Gap:
    """The gap that a bug of firstlight leaves."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    detail = (
        f"a bug of firstlight, please report it: {type(error).__name__}: {error} ({where.filename}:{where.lineno})"
    )
    return Gap(what="one moment of watching", reason=GapReason.FAILED, detail=detail[:500])
