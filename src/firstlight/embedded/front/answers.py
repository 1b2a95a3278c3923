"""Sending an answer, whole or as server-sent events, and letting go of it as soon as the client has gone."""

import asyncio
from collections.abc import Coroutine

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from firstlight.embedded.errors import RequestRefused
from firstlight.embedded.front.generation import Generation
from firstlight.embedded.front.replies import Document, Reply, error_document, event

DONE = b"data: [DONE]\n\n"
EVENT_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


def json_response(document: Document, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(document), status, headers, "application/json")


def refusal(error: RequestRefused) -> Response:
    """The answer to a request that is refused."""
    headers = {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
    return json_response(error_document(error), error.status, headers)


class WholeAnswer:
    """The answer in one document."""

    def __init__(self, generation: Generation, reply: Reply) -> None:
        self._generation = generation
        self._reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._answer(scope, receive, send))
        finally:
            self._generation.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        generation = self._generation
        try:
            pieces = [piece async for piece in generation.pieces()]
            response = json_response(self._reply.whole(pieces, generation.finish, generation.usage))
        except RequestRefused as error:
            response = refusal(error)
        generation.close()  # before the client can know: its place is free when it asks again
        await response(scope, receive, send)


class StreamedAnswer:
    """The answer as it is made: one event a piece, then `[DONE]`.

    A client that does not read is not waited for: the connection ends it (see `http`), and until then its tokens
    wait in the ticket, which ends the request when they become too many.
    """

    def __init__(self, generation: Generation, reply: Reply, *, with_usage: bool) -> None:
        self._generation = generation
        self._reply = reply
        self._with_usage = with_usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._stream(send))
        finally:
            self._generation.close()

    async def _stream(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})
        try:
            await self._pieces(send)
            end = self._end()
        except RequestRefused as error:  # too late for a status: the stream itself must say it
            end = event(error_document(error))
        self._generation.close()
        await send({"type": "http.response.body", "body": end + DONE})

    async def _pieces(self, send: Send) -> None:
        if opening := self._reply.opening():
            await send({"type": "http.response.body", "body": opening, "more_body": True})
        async for piece in self._generation.pieces():
            await send({"type": "http.response.body", "body": self._reply.piece(piece), "more_body": True})

    def _end(self) -> bytes:
        closing = self._reply.closing(self._generation.finish)
        return closing + (self._reply.usage(self._generation.usage) if self._with_usage else b"")


async def unless_gone(receive: Receive, work: Coroutine[None, None, None]) -> None:
    """Do `work`, but drop it when the client disconnects."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_client_gone(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
