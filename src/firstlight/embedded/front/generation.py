"""One answer as it is made: tokens from the worker become text for the client."""

from collections.abc import AsyncIterator

from firstlight.embedded.front.detokenize import TextStream
from firstlight.embedded.front.link import Link, Ticket
from firstlight.embedded.front.openai import Usage


class Generation:
    """Holds a place at the worker from `submit` to `close`."""

    def __init__(self, link: Link, ticket: Ticket, text: TextStream, prompt_tokens: int) -> None:
        self._link = link
        self._ticket = ticket
        self._text = text
        self._prompt_tokens = prompt_tokens
        self._tokens = 0
        self.finish = ""

    async def pieces(self) -> AsyncIterator[str]:
        """Text as it becomes certain; afterwards `finish` is "stop" or "length". Raises RequestRefused."""
        while not self.finish:
            output = await self._ticket.next()
            self._tokens += 1
            self.finish = output.finish
            if output.finish == "stop":  # the end token itself is not text
                break
            if piece := self._text.push(output.token):
                yield piece
            if self._text.stopped:
                self.finish = "stop"
        if not self._text.stopped and (rest := self._text.flush()):
            yield rest

    @property
    def usage(self) -> Usage:
        return Usage(prompt=self._prompt_tokens, completion=self._tokens)

    def close(self) -> None:
        """Give the place back; an unfinished request is cancelled at the worker."""
        self._link.release(self._ticket)
