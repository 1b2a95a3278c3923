"""The HTTP surface: routes, and each request's way from body to answer."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from firstlight.embedded.errors import RequestRefused, WaitTimedOut
from firstlight.embedded.front.answers import StreamedAnswer, WholeAnswer, json_response
from firstlight.embedded.front.aside import aside
from firstlight.embedded.front.detokenize import TextStream
from firstlight.embedded.front.generation import Generation
from firstlight.embedded.front.link import Link
from firstlight.embedded.front.openai import ChatCompletion, Common, Completion, parse
from firstlight.embedded.front.replies import ChatReply, CompletionReply, Document, Reply, error_document
from firstlight.embedded.front.status import Status
from firstlight.embedded.front.text import Text

MAX_BODY = 8 << 20
BODY_DEADLINE_S = 60.0
ENCODE_DEADLINE_S = 30.0
DEFAULT_COMPLETION_TOKENS = 16

Handler = Callable[[Request], Awaitable[ASGIApp]]
T = TypeVar("T")


class Api:
    """Everything behind /v1, /health and /metrics. `text` is there once the tokenizer is loaded."""

    def __init__(self, link: Link, status: Status, *, model_names: tuple[str, ...], api_key: str) -> None:
        self._link = link
        self._status = status
        self._model_names = model_names
        self._api_key = api_key
        self._text: Text | None = None

    def use(self, text: Text) -> None:
        self._text = text
        self._status.text_loaded = True

    def app(self) -> Starlette:
        routes = [
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/v1/models", self._guarded(self.models)),
            Route("/v1/completions", self._guarded(self.completions), methods=["POST"]),
            Route("/v1/chat/completions", self._guarded(self.chat), methods=["POST"]),
        ]
        handlers = {RequestRefused: _refused, HTTPException: _http_error, Exception: _our_fault}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def health(self, _: Request) -> Response:
        status, document = self._status.health()
        return json_response(document, status)

    async def metrics(self, _: Request) -> Response:
        return PlainTextResponse(self._status.metrics(), media_type="text/plain; version=0.0.4")

    async def models(self, _: Request) -> Response:
        card: Document = {"id": self._model_names[0], "object": "model", "created": 0, "owned_by": "firstlight"}
        card["max_model_len"] = self._room
        return json_response({"object": "list", "data": [card]})

    async def completions(self, request: Request) -> ASGIApp:
        body = parse(await _read_body(request), Completion)
        self._check_model(body)
        prompt = body.prompt_text_or_tokens
        tokens = await _encoded(self._loaded_text.encode, prompt) if isinstance(prompt, str) else prompt
        return self._answer(body, tokens, body.max_tokens or DEFAULT_COMPLETION_TOKENS, CompletionReply)

    async def chat(self, request: Request) -> ASGIApp:
        body = parse(await _read_body(request), ChatCompletion)
        self._check_model(body)
        tokens = await _encoded(self._loaded_text.encode_chat, [message.plain() for message in body.messages])
        return self._answer(body, tokens, body.max_completion_tokens or body.max_tokens, ChatReply)

    def _guarded(self, handler: Handler) -> Handler:
        """Key first, then readiness: a stranger learns nothing about the server."""

        async def checked(request: Request) -> ASGIApp:
            self._check_key(request)
            self._check_ready()
            return await handler(request)

        return checked

    def _check_key(self, request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._api_key and not hmac.compare_digest(given.encode(), self._api_key.encode()):
            raise RequestRefused(
                "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'",
                status=401,
                kind="authentication_error",
                code="invalid_api_key",
            )

    def _check_ready(self) -> None:
        if self._status.ready:
            return
        document = self._status.health()[1]
        what = document.get("reason") or f"the server is starting (phase {document['phase']}); see /health"
        raise RequestRefused(what, status=503, kind="service_unavailable", code="not_ready", retry_after_s=1)

    def _check_model(self, body: Common) -> None:
        if body.model is not None and body.model not in self._model_names:
            raise RequestRefused(
                f"the model {body.model!r} is not served here; {self._model_names[0]!r} is",
                status=404,
                kind="not_found_error",
                param="model",
                code="model_not_found",
            )

    def _answer(
        self, body: Common, prompt: list[int], max_tokens: int | None, shape: Callable[[str], Reply]
    ) -> ASGIApp:
        generation = self._begin(body, prompt, max_tokens)
        reply = shape(self._model_names[0])
        if body.stream:
            return StreamedAnswer(generation, reply, with_usage=body.usage_wanted)
        return WholeAnswer(generation, reply)

    def _begin(self, body: Common, prompt: list[int], max_tokens: int | None) -> Generation:
        text = self._loaded_text
        room = self._room - len(prompt)
        self._check_prompt(prompt, room, max_tokens)
        stream = TextStream(text.decode, body.stops)
        ticket = self._link.submit(
            prompt, max_tokens=max_tokens or room, stop_tokens=text.end_tokens, sampling=body.sampling
        )
        return Generation(self._link, ticket, stream, len(prompt))

    def _check_prompt(self, prompt: list[int], room: int, max_tokens: int | None) -> None:
        vocabulary = self._link.ready.vocab_size if self._link.ready else 0
        if not prompt:
            raise RequestRefused("the prompt is empty", param="prompt")
        if not all(0 <= token < vocabulary for token in prompt):
            raise RequestRefused(f"a token of the prompt is not in the vocabulary of {vocabulary}", param="prompt")
        if room < (max_tokens or 1):
            raise RequestRefused(
                f"the prompt has {len(prompt)} tokens and {max_tokens or 1} more were asked for; "
                f"the server takes {self._room} together",
                param="max_tokens" if room > 0 else "prompt",
                code="context_length_exceeded",
            )

    @property
    def _loaded_text(self) -> Text:
        assert self._text is not None, "guarded routes run only when the server is ready"
        return self._text

    @property
    def _room(self) -> int:
        return self._link.ready.max_model_len if self._link.ready else 0


async def _encoded(encode: Callable[[T], list[int]], prompt: T) -> list[int]:
    """Encode beside the event loop: a long prompt, or a slow chat template, must not hold up the others."""
    try:
        return await aside(lambda: encode(prompt), name="the prompt to be encoded", deadline_s=ENCODE_DEADLINE_S)
    except WaitTimedOut as error:
        raise RequestRefused(str(error), param="prompt") from None


async def _read_body(request: Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_DEADLINE_S):
            return await _bounded_body(request)
    except TimeoutError:
        raise RequestRefused(f"the body did not come within {BODY_DEADLINE_S:g} s", status=408) from None


async def _bounded_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise RequestRefused(f"the body is larger than {MAX_BODY} bytes", status=413, code="body_too_large")
    return bytes(body)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefused)
    headers = {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
    return json_response(error_document(error), error.status, headers)


async def _http_error(_: Request, error: Exception) -> Response:
    """No such route, or not with this method."""
    assert isinstance(error, HTTPException)
    return json_response(error_document(RequestRefused(error.detail)), error.status_code)


async def _our_fault(_: Request, error: Exception) -> Response:
    fault = RequestRefused(f"internal error: {type(error).__name__}", status=500, kind="server_error")
    return json_response(error_document(fault), 500)
