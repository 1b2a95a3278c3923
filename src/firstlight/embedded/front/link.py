"""The front's end of the socket to the worker: what the worker said last, and the requests it is working on."""

import asyncio
import time
from collections.abc import Sequence

from firstlight.embedded.channel import HEADER, body_length, frame, from_worker
from firstlight.embedded.errors import PeerGone, RequestRefused, WaitTimedOut
from firstlight.embedded.front.aside import aside
from firstlight.embedded.front.worker_process import WorkerProcess
from firstlight.embedded.log import Log
from firstlight.embedded.messages import (
    Cancel,
    Failed,
    FromWorker,
    Output,
    Ready,
    Sampling,
    Stamp,
    Started,
    Step,
    Submit,
    ToWorker,
)

EXIT_DEADLINE_S = 3.0
TOKEN_DEADLINE_S = 600.0
"""How long one request may go without a token, time in the queue included."""


class Ticket:
    """A request in flight."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.started = False
        self.finished = False
        self._outputs: asyncio.Queue[Output | RequestRefused] = asyncio.Queue()

    def put(self, output: Output | RequestRefused) -> None:
        self._outputs.put_nowait(output)

    async def next(self) -> Output:
        """The next token. Raises RequestRefused if the worker was lost, or gave none for ten minutes."""
        try:
            async with asyncio.timeout(TOKEN_DEADLINE_S):
                output = await self._outputs.get()
        except TimeoutError:
            waited = WaitTimedOut("a token from the worker", TOKEN_DEADLINE_S)
            raise RequestRefused(str(waited), status=504, kind="server_error", code="timeout") from None
        if isinstance(output, RequestRefused):
            raise output
        return output


class Link:
    """Everything the front knows of the worker."""

    def __init__(self, worker: WorkerProcess, log: Log, *, places: int, stall_after_s: float) -> None:
        self.worker = worker
        self.stamp = Stamp(rank=worker.rank, phase="spawn", at=time.monotonic(), steps=0)
        self.ready: Ready | None = None
        self.became_ready = asyncio.Event()
        self.failure = ""
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self._log = log
        self._places = places
        self._stall_after_s = stall_after_s
        self._tickets: dict[int, Ticket] = {}
        self._numbers = 0
        self._writer: asyncio.StreamWriter | None = None

    @property
    def in_flight(self) -> int:
        return len(self._tickets)

    @property
    def running(self) -> int:
        return sum(ticket.started for ticket in self._tickets.values())

    def stamp_age_s(self) -> float:
        """Seconds since the worker's working thread last showed progress."""
        return max(0.0, time.monotonic() - self.stamp.at)

    def stall(self) -> str:
        """Why a worker that should serve seems not to; empty if it does."""
        age = self.stamp_age_s()
        if self.ready is None or age <= self._stall_after_s:
            return ""
        return f"{self.worker.name} has made no progress for {age:.0f} s; {_requests(self.in_flight)} in flight"

    async def follow(self) -> None:
        """Take the worker's messages until it ends. Raises PeerGone, which says how it ended."""
        reader, self._writer = await asyncio.open_connection(sock=self.worker.socket, limit=1 << 20)
        try:
            while True:
                self._take(await self._read(reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise PeerGone(await self._how_it_ended()) from None
        finally:
            self._writer.close()

    def fail(self, reason: str) -> None:
        """There will be no more tokens; what the worker itself said goes before what was seen from here."""
        self.failure = self.failure or reason
        for ticket in self._tickets.values():
            ticket.put(RequestRefused(self.failure, status=500, kind="server_error", code="worker_lost"))

    async def _read(self, reader: asyncio.StreamReader) -> FromWorker:
        """The next message. A silence that looks like a stall is said in the log and waited out."""
        while True:
            try:
                async with asyncio.timeout(self._stall_after_s + 1):
                    header = await reader.readexactly(HEADER.size)
                break
            except TimeoutError:
                self._log.say("warning", self.stall() or f"{self.worker.name} is still in phase={self.stamp.phase}")
        body = await reader.readexactly(body_length(header))
        message: FromWorker = from_worker.decode(body)
        return message

    def _take(self, message: FromWorker) -> None:
        match message:
            case Stamp():
                self.stamp = message
            case Step(outputs=outputs, stamp=stamp):
                self.stamp = stamp
                for output in outputs:
                    self._hand_over(output)
            case Started(request=number) if number in self._tickets:
                self._tickets[number].started = True
            case Ready():
                self.ready = message
                self.became_ready.set()
            case Failed(message=text):
                self.failure = text

    def _hand_over(self, output: Output) -> None:
        self.generated_tokens += 1
        if ticket := self._tickets.get(output.request):
            ticket.finished = bool(output.finish)
            ticket.put(output)

    async def _how_it_ended(self) -> str:
        name = f"{self.worker.name} to end"
        how = await aside(lambda: self.worker.wait(EXIT_DEADLINE_S), name=name, deadline_s=EXIT_DEADLINE_S + 1)
        how = how or "closed its socket but lives on"
        return f"{self.worker.name} {how} (phase={self.stamp.phase}, {_requests(self.in_flight)} in flight)"

    def submit(
        self, prompt: Sequence[int], *, max_tokens: int, stop_tokens: Sequence[int], sampling: Sampling
    ) -> Ticket:
        """Hand a request to the worker. Raises RequestRefused: 429 if too many wait, 503 if there is no worker."""
        if self.failure or self._writer is None:
            raise RequestRefused(self.failure, status=503, kind="service_unavailable", code="worker_lost")
        if self.in_flight >= self._places:
            raise RequestRefused(
                f"{_requests(self.in_flight)} are in flight, and no more can wait; try again later",
                status=429,
                kind="rate_limit_error",
                code="queue_full",
                retry_after_s=1,
            )
        self._numbers += 1
        ticket = self._tickets[self._numbers] = Ticket(self._numbers)
        self.prompt_tokens += len(prompt)
        self._send(
            Submit(
                request=ticket.number,
                prompt=list(prompt),
                max_tokens=max_tokens,
                stop_tokens=list(stop_tokens),
                sampling=sampling,
            )
        )
        return ticket

    def release(self, ticket: Ticket) -> None:
        """The request is over for its client, whether it was answered or not."""
        if self._tickets.pop(ticket.number, None) and not ticket.finished and not self.failure:
            self._send(Cancel(request=ticket.number))

    def _send(self, message: ToWorker) -> None:
        """Never waits: what the worker has not taken stays in our memory, bounded by the places in the queue."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(message))


def _requests(number: int) -> str:
    return f"{number} request" if number == 1 else f"{number} requests"
