"""A request in flight, as the front sees it: its tokens on their way from the worker to the client."""

import asyncio
import time

from firstlight.embedded.errors import RequestRefused
from firstlight.embedded.messages import Output

MOST_UNREAD = 8192
"""Tokens, alternatives told beside them counted as well, that may wait for a client that does not read its stream.
The kernel holds some megabytes before the first of them has to wait here."""


class Ticket:
    """A place at the worker. Tokens that come while the client is slow wait here, and are taken all at once."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.started = False
        self.finished = False
        self.began = self.heard = time.monotonic()
        """When it was submitted, and when the worker last gave it a token."""
        self.tokens = 0
        self._outputs: list[Output] = []
        self._unread = 0
        self._error: RequestRefused | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def overfull(self) -> bool:
        return self._unread > MOST_UNREAD

    def put(self, output: Output) -> None:
        self._outputs.append(output)
        self._unread += 1 + len(output.top)
        self._wake()

    def fail(self, error: RequestRefused) -> None:
        """There will be no more tokens; those that nobody took are dropped if they are too many to keep."""
        self._error = error
        self.finished = True
        if self.overfull:
            self._outputs = []
        self._wake()

    async def next(self) -> list[Output]:
        """The tokens that have come, at least one. Raises RequestRefused after the last, if there will be no more."""
        while not self._outputs:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        outputs, self._outputs = self._outputs, []
        self._unread = 0
        return outputs

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
