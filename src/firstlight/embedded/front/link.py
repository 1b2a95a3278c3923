"""Requests on their way to rank 0, and its tokens on their way back."""

import time
from collections.abc import Sequence

from firstlight.embedded.errors import RequestRefused, WaitTimedOut
from firstlight.embedded.front.crew import Crew, requests
from firstlight.embedded.front.measures import Measures
from firstlight.embedded.front.ticket import Ticket
from firstlight.embedded.messages import Cancel, Counters, FromWorker, Output, Sampling, Started, Step, Submit

TOKEN_DEADLINE_S = 600.0
"""How long one request may go without a token, time in the queue included."""


class Link:
    """Every request in flight. There are `places` for them, running and waiting together."""

    def __init__(self, crew: Crew, measures: Measures, *, places: int) -> None:
        crew.take = self.take
        self.failure = ""
        self._crew = crew
        self._measures = measures
        self._places = places
        self._tickets: dict[int, Ticket] = {}
        self._numbers = 0

    @property
    def in_flight(self) -> int:
        return len(self._tickets)

    @property
    def running(self) -> int:
        return sum(ticket.started for ticket in self._tickets.values())

    def take(self, message: FromWorker) -> None:
        """What rank 0 says of requests."""
        match message:
            case Step(outputs=outputs) if outputs:
                self._hand_over(outputs)
            case Started(request=number) if number in self._tickets:
                self._tickets[number].started = True
            case Counters():
                self._measures.counters = message

    def fail(self, reason: str) -> None:
        """There will be no more tokens."""
        self.failure = self.failure or reason
        for ticket in self._tickets.values():
            ticket.fail(RequestRefused(self.failure, status=500, kind="server_error", code="worker_lost"))

    def check_places(self) -> None:
        """Raises RequestRefused: 429 if too many wait, 503 if there is no worker."""
        if self.failure:
            raise RequestRefused(self.failure, status=503, kind="service_unavailable", code="worker_lost")
        if self.in_flight >= self._places:
            self._measures.rejected += 1
            raise RequestRefused(
                f"{requests(self.in_flight)} are in flight, and no more can wait; try again later",
                status=429,
                kind="rate_limit_error",
                code="queue_full",
                retry_after_s=1,
            )

    def submit(
        self, prompt: Sequence[int], *, max_tokens: int, stop_tokens: Sequence[int], sampling: Sampling
    ) -> Ticket:
        """Hand a request to the worker. Raises RequestRefused as `check_places` does."""
        self.check_places()
        self._numbers += 1
        ticket = self._tickets[self._numbers] = Ticket(self._numbers)
        self._measures.prompt_tokens += len(prompt)
        self._crew.send(
            Submit(
                request=ticket.number,
                prompt=list(prompt),
                max_tokens=max_tokens,
                stop_tokens=list(stop_tokens),
                sampling=sampling,
            )
        )
        return ticket

    def release(self, ticket: Ticket, finish: str) -> None:
        """The request is over for its client: answered, with its `finish`, or given up, with none."""
        if self._tickets.pop(ticket.number, None) is None:
            return
        self._measures.request_ended(finish or "cancelled", time.monotonic() - ticket.began)
        self._cancel(ticket)

    def sweep(self) -> None:
        """End requests that have waited too long for a token."""
        late = time.monotonic() - TOKEN_DEADLINE_S
        for ticket in self._tickets.values():
            if ticket.heard < late and not ticket.finished:
                waited = str(WaitTimedOut("a token from the worker", TOKEN_DEADLINE_S))
                self._give_up(ticket, RequestRefused(waited, status=504, kind="server_error", code="timeout"))

    def _hand_over(self, outputs: list[Output]) -> None:
        now = time.monotonic()
        fresh: dict[int, int] = {}
        for output in outputs:
            ticket = self._tickets.get(output.request)
            if ticket is None or ticket.finished:
                continue
            ticket.put(output)
            ticket.finished = bool(output.finish)
            if output.finish != "error":
                fresh[output.request] = fresh.get(output.request, 0) + 1
            if ticket.overfull:
                self._give_up(ticket, RequestRefused("the client does not read its answer", code="client_too_slow"))
        for number, count in fresh.items():
            self._measure(self._tickets[number], count, now)

    def _measure(self, ticket: Ticket, count: int, now: float) -> None:
        first = ticket.tokens == 0
        self._measures.tokens_came(count, now - (ticket.began if first else ticket.heard), first=first)
        ticket.tokens += count
        ticket.heard = now

    def _give_up(self, ticket: Ticket, error: RequestRefused) -> None:
        self._cancel(ticket)
        ticket.fail(error)

    def _cancel(self, ticket: Ticket) -> None:
        """Tell the worker that nobody waits for it any more; once."""
        if not ticket.finished and not self.failure:
            self._crew.send(Cancel(request=ticket.number))
        ticket.finished = True
