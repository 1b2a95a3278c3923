"""The life of a rank that serves: rank 0 takes requests, schedules and reports; the others run what it sends."""

import time
from collections.abc import Callable
from dataclasses import asdict

from firstlight.embedded.channel import Channel
from firstlight.embedded.messages import Cancel, Counters, Ready, Started, Step, Submit
from firstlight.embedded.model.passes import Pass, Result
from firstlight.embedded.worker.assembly import Assembled, scheduler_of
from firstlight.embedded.worker.counts import Counts
from firstlight.embedded.worker.peers import Follower, Leader
from firstlight.embedded.worker.plan import Plan
from firstlight.embedded.worker.progress import Progress
from firstlight.embedded.worker.scheduler import Scheduler

IDLE_S = 1.0
"""How long rank 0 waits for a request before it stamps and looks after the others again."""
COUNT_EVERY_S = 0.5
SAY_EVERY_S = 10.0


def lead(plan: Plan, assembled: Assembled, channel: Channel, progress: Progress, peers: Leader | None) -> None:
    """Take messages, work, report; an idle round reports too. Ends with PeerGone when the front does."""
    scheduler = scheduler_of(plan, assembled, _everywhere(assembled, peers))
    reported = _Reported(channel, progress)
    channel.send(Ready(max_model_len=assembled.positions, vocab_size=assembled.config.vocab_size))
    while True:
        for message in channel.receive(0 if scheduler.busy else IDLE_S):
            if isinstance(message, Submit):
                scheduler.submit(message)
            elif isinstance(message, Cancel):
                scheduler.cancel(message.request)
        for request in scheduler.admit():
            channel.send(Started(request=request))
        if not scheduler.busy and peers is not None:
            peers.check()
        outputs = scheduler.step()
        channel.send(Step(outputs=outputs, stamp=progress.stamp()))
        reported.tell(scheduler)


def follow(assembled: Assembled, peers: Follower) -> None:
    """Run the passes that rank 0 sends until it says that there are no more."""
    while (work := peers.receive()) is not None:
        assembled.runner.run(work)


def _everywhere(assembled: Assembled, peers: Leader | None) -> Callable[[Pass], Result]:
    """A pass on every rank."""
    if peers is None:
        return assembled.runner.run

    def run(work: Pass) -> Result:
        peers.send(work)
        return assembled.runner.run(work)

    return run


class _Reported:
    """Tells the front what was counted, twice a second while there is work and once when it ends, and the log how
    drafts fare."""

    def __init__(self, channel: Channel, progress: Progress) -> None:
        self._channel = channel
        self._progress = progress
        self._told_at = self._said_at = time.monotonic()
        self._told: Counters | None = None
        self._said_drafts = 0
        self._said_accepted: list[int] = []

    def tell(self, scheduler: Scheduler) -> None:
        now = time.monotonic()
        if scheduler.busy and now - self._told_at < COUNT_EVERY_S:
            return
        counts = asdict(scheduler.counts)
        counters = Counters(**{name: counts[name] for name in Counters.__struct_fields__ if name in counts})
        if counters != self._told:
            self._channel.send(counters)
            self._told, self._told_at = counters, now
        if now - self._said_at >= SAY_EVERY_S:
            self._said_at = now
            self._say(scheduler.counts)

    def _say(self, counts: Counts) -> None:
        if text := counts.acceptance_since(self._said_drafts, self._said_accepted):
            self._progress.say(text)
            self._said_drafts, self._said_accepted = counts.drafts, list(counts.accepted_per_position)
