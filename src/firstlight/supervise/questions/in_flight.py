"""How many requests a server says it has: the gauges of its `/metrics`."""

from firstlight.clock import Clock, Deadline, SystemClock
from firstlight.core.gap import Gap, Seen
from firstlight.core.server import ServerCommand
from firstlight.core.vocabulary import GapReason
from firstlight.engines import profile
from firstlight.supervise.questions.http_question import Failure, exchange

REQUESTS_MAX = 1e9
"""No server has as many; a gauge beyond it (or NaN, or below zero) makes no sense and is not counted."""

_SYSTEM_CLOCK = SystemClock()


def requests_in_flight(
    command: ServerCommand, port: int, deadline_s: float, clock: Clock = _SYSTEM_CLOCK
) -> Seen[int]:
    """Requests that run or wait, from `/metrics`; a gap where the server does not tell."""
    deadline = Deadline(clock, deadline_s, "/metrics")
    reply = exchange(command.host, port, "/metrics", deadline=deadline, key=command.api_key)
    if isinstance(reply, Failure):
        reason = GapReason.TIMED_OUT if reply is Failure.NO_REPLY else GapReason.FAILED
        return Gap(what="requests in flight", reason=reason, detail=f"/metrics: {reply}")
    values = _gauges(reply.body.decode(errors="replace"), profile(command.engine).in_flight)
    if reply.status != 200 or not values:
        return Gap(
            what="requests in flight",
            reason=GapReason.NOT_SUPPORTED,
            detail="the server's /metrics does not count them (SGLang: start it with --enable-metrics)",
        )
    return round(sum(values))


def _gauges(text: str, names: tuple[str, ...]) -> list[float]:
    """The values of the named gauges in Prometheus' text format, one for each set of labels."""
    values = []
    for line in text.splitlines():
        if line.startswith(names) and line.partition("{")[0].partition(" ")[0] in names:
            try:
                value = float(line.rpartition(" ")[2])
            except ValueError:
                continue
            if 0 <= value <= REQUESTS_MAX:
                values.append(value)
    return values
