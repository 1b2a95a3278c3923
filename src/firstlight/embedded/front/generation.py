"""One answer as it is made: tokens from the worker become text, and scores where they are asked for."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from firstlight.embedded.errors import RequestRefused
from firstlight.embedded.front.detokenize import TextStream
from firstlight.embedded.front.link import Link
from firstlight.embedded.front.openai import Usage
from firstlight.embedded.front.ticket import Ticket
from firstlight.embedded.messages import Output, TopToken


class Score(NamedTuple):
    """A token of the answer, the logarithm of its probability, the likeliest tokens there, its place in the text."""

    token: int
    logprob: float
    top: list[TopToken]
    start: int
    end: int


class Piece(NamedTuple):
    """Text that is certain, and the scores of the tokens that it is made of."""

    text: str
    scores: list[Score]


class Generation:
    """Holds a place at the worker from `submit` to `close`."""

    def __init__(self, link: Link, ticket: Ticket, text: TextStream, prompt_tokens: int) -> None:
        self._link = link
        self._ticket = ticket
        self._text = text
        self._prompt_tokens = prompt_tokens
        self._tokens = 0
        self._scores: list[Score] = []
        self.finish = ""
        """Why it ended: "stop" or "length"; empty until then."""

    async def pieces(self) -> AsyncIterator[Piece]:
        """What has become certain, a piece for all tokens that came together. Raises RequestRefused."""
        while not self.finish:
            piece = self._piece(await self._ticket.next())
            if piece.text or piece.scores:
                yield piece

    @property
    def usage(self) -> Usage:
        return Usage(prompt=self._prompt_tokens, completion=self._tokens)

    def close(self) -> None:
        """Give the place back; an unfinished request is cancelled at the worker."""
        self._link.release(self._ticket, self.finish)

    def _piece(self, outputs: list[Output]) -> Piece:
        text = "".join([self._take(output) for output in outputs if not self.finish])
        if self.finish and not self._text.stopped:
            text += self._text.flush()
        return Piece(text, self._certain_scores() if text or self.finish else [])

    def _take(self, output: Output) -> str:
        """One token's text. The end token has none, but counts."""
        if output.finish == "error":
            self.finish = "error"
            raise RequestRefused(output.error, status=500, kind="server_error", code="generation_failed")
        self._tokens += 1
        self.finish = output.finish
        if output.finish == "stop":
            return ""
        start = self._text.length
        text = self._text.push(output.token)
        if output.logprob is not None:
            self._scores.append(Score(output.token, output.logprob, output.top, start, self._text.length))
        if self._text.stopped:
            self._drop_scores_after(self._text.length)
            self.finish = "stop"
        return text

    def _certain_scores(self) -> list[Score]:
        """Scores of tokens whose text has been given out whole; the others wait for theirs."""
        if not self._scores:
            return []
        certain = [score for score in self._scores if score.end <= self._text.shown]
        self._scores = self._scores[len(certain) :]
        return certain

    def _drop_scores_after(self, end: int) -> None:
        """A token that reaches into the stop string, or lies behind it, is no part of the answer."""
        self._scores = [score for score in self._scores if score.start < end and score.end <= end]
