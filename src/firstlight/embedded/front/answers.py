"""Sending an answer, whole or as server-sent events, and letting go of it as soon as the client has gone."""

import asyncio
from collections.abc import Coroutine

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from firstlight.embedded.errors import RequestRefused
from firstlight.embedded.front.generation import Generation
from firstlight.embedded.front.replies import Document, Reply, error_document

SEND_DEADLINE_S = 60.0
"""A client that takes nothing for so long is treated as gone."""
DONE = b"data: [DONE]\n\n"


def json_response(document: Document, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(document), status, headers, "application/json")


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
        text = "".join([piece async for piece in generation.pieces()])
        response = json_response(self._reply.whole(text, generation.finish, generation.usage))
        await response(scope, receive, send)


class StreamedAnswer:
    """The answer as it is made: one event a piece, then `[DONE]`."""

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
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            await self._pieces(send)
        except RequestRefused as error:  # too late for a status: the stream itself must say it
            await _send_event(send, error_document(error))
        await _send_bytes(send, DONE)
        await send({"type": "http.response.body", "body": b""})

    async def _pieces(self, send: Send) -> None:
        generation, reply = self._generation, self._reply
        for document in reply.opening():
            await _send_event(send, document)
        async for piece in generation.pieces():
            await _send_event(send, reply.piece(piece))
        await _send_event(send, reply.closing(generation.finish))
        if self._with_usage:
            await _send_event(send, reply.usage(generation.usage))


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


async def _send_event(send: Send, document: Document) -> None:
    await _send_bytes(send, b"data: " + msgspec.json.encode(document) + b"\n\n")


async def _send_bytes(send: Send, body: bytes) -> None:
    """Raises TimeoutError if the client takes nothing for a minute; the connection is then dropped."""
    async with asyncio.timeout(SEND_DEADLINE_S):
        await send({"type": "http.response.body", "body": body, "more_body": True})
