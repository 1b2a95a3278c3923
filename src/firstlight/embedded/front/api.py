"""The HTTP surface: routes, and each request's way from body to answer."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from firstlight.embedded.errors import RequestRefused, WaitTimedOut
from firstlight.embedded.front import metrics
from firstlight.embedded.front.answers import StreamedAnswer, WholeAnswer, json_response, refusal
from firstlight.embedded.front.aside import aside
from firstlight.embedded.front.bodies import Bodies
from firstlight.embedded.front.crew import Crew
from firstlight.embedded.front.detokenize import TextStream
from firstlight.embedded.front.generation import Generation
from firstlight.embedded.front.limits import Limits
from firstlight.embedded.front.link import Link
from firstlight.embedded.front.measures import Measures
from firstlight.embedded.front.openai import ChatCompletion, Common, Completion, parse
from firstlight.embedded.front.replies import ChatReply, CompletionReply, Document, error_document
from firstlight.embedded.front.status import Status
from firstlight.embedded.front.text import Text

ENCODE_DEADLINE_S = 30.0
SHORT = 2048
"""Characters that are encoded (well below a millisecond) in less time than it takes to begin a thread for it."""
ENCODERS = 2
DEFAULT_COMPLETION_TOKENS = 16
PATHS = "/v1/models, /v1/completions, /v1/chat/completions, /health and /metrics"

Handler = Callable[[Request], Awaitable[ASGIApp]]


class Api:
    """Everything behind /v1, /health and /metrics. `text` is there once the tokenizer is loaded."""

    def __init__(
        self,
        crew: Crew,
        link: Link,
        status: Status,
        measures: Measures,
        limits: Limits,
        *,
        model_names: tuple[str, ...],
        api_key: str,
    ) -> None:
        self._crew = crew
        self._link = link
        self._status = status
        self._measures = measures
        self._limits = limits
        self._model_names = model_names
        self._api_key = api_key
        self._bodies = Bodies()
        self._encoders = asyncio.Semaphore(ENCODERS)
        self._text: Text | None = None

    def use(self, text: Text) -> None:
        self._text = text
        self._status.text_loaded = True

    def app(self) -> Starlette:
        routes = [
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/v1/models", self._guarded(self.models)),
            Route("/v1/models/{name:path}", self._guarded(self.model)),
            Route("/v1/completions", self._guarded(self.completions), methods=["POST"]),
            Route("/v1/chat/completions", self._guarded(self.chat), methods=["POST"]),
        ]
        handlers = {RequestRefused: _refused, HTTPException: _http_error, Exception: _our_fault}
        return Starlette(routes=routes, exception_handlers=handlers)

    async def health(self, _: Request) -> Response:
        status, document = self._status.health()
        return json_response(document, status)

    async def metrics(self, _: Request) -> Response:
        text = metrics.document(self._crew, self._link, self._measures)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def models(self, _: Request) -> Response:
        return json_response({"object": "list", "data": [self._card()]})

    async def model(self, request: Request) -> Response:
        self._check_model(request.path_params["name"])
        return json_response(self._card())

    async def completions(self, request: Request) -> ASGIApp:
        async with self._bodies.of(request) as raw:
            body = parse(raw, Completion)
            self._check(body)
            given = body.prompt_text_or_tokens
            prompt = await self._encoded(self._loaded_text.encode, given) if isinstance(given, str) else given
            generation = self._begin(body, prompt, body.max_tokens, DEFAULT_COMPLETION_TOKENS)
        names = self._loaded_text.token_bytes
        reply = CompletionReply(self._model_names[0], names, with_scores=body.alternatives is not None)
        return _answer(generation, reply, body)

    async def chat(self, request: Request) -> ASGIApp:
        async with self._bodies.of(request) as raw:
            body = parse(raw, ChatCompletion)
            self._check(body)
            text = await self._loaded_text.render([message.plain() for message in body.messages])
            prompt = await self._encoded(self._loaded_text.encode_rendered, text)
            generation = self._begin(body, prompt, body.max_completion_tokens or body.max_tokens)
        names = self._loaded_text.token_bytes
        reply = ChatReply(self._model_names[0], names, with_scores=body.alternatives is not None)
        return _answer(generation, reply, body)

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

    def _check(self, body: Common) -> None:
        """All that can be refused before the prompt is encoded, which is the only part that costs."""
        if body.model is not None:
            self._check_model(body.model)
        self._link.check_places()

    def _check_model(self, name: str) -> None:
        if name not in self._model_names:
            raise RequestRefused(
                f"the model {name[:200]!r} is not served here; {self._model_names[0]!r} is",
                status=404,
                kind="not_found_error",
                param="model",
                code="model_not_found",
            )

    async def _encoded(self, encode: Callable[[str], list[int]], prompt: str) -> list[int]:
        """Encode; a long prompt beside the event loop, where it does not hold up the others."""
        if len(prompt) <= SHORT:
            return encode(prompt)
        try:
            async with asyncio.timeout(ENCODE_DEADLINE_S), self._encoders:
                return await aside(lambda: encode(prompt), name="encoder", deadline_s=ENCODE_DEADLINE_S)
        except (TimeoutError, WaitTimedOut):
            raise RequestRefused(
                f"the prompt was not encoded within {ENCODE_DEADLINE_S:g} s", status=503, retry_after_s=1
            ) from None

    def _begin(self, body: Common, prompt: list[int], asked: int | None, default: int | None = None) -> Generation:
        self._limits.check_prompt(prompt)
        text = self._loaded_text
        stop_tokens = () if body.ignore_eos else text.end_tokens
        ticket = self._link.submit(
            prompt,
            max_tokens=self._limits.answer(prompt, asked, default),
            stop_tokens=[*stop_tokens, *(body.stop_token_ids or [])],
            sampling=body.sampling,
        )
        return Generation(self._link, ticket, TextStream(text.decode, body.stops), len(prompt))

    def _card(self) -> Document:
        card: Document = {"id": self._model_names[0], "object": "model", "created": 0, "owned_by": "firstlight"}
        return card | {"max_model_len": self._limits.together}

    @property
    def _loaded_text(self) -> Text:
        assert self._text is not None, "guarded routes run only when the server is ready"
        return self._text


def _answer(generation: Generation, reply: CompletionReply | ChatReply, body: Common) -> ASGIApp:
    if body.stream:
        return StreamedAnswer(generation, reply, with_usage=body.usage_wanted)
    return WholeAnswer(generation, reply)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefused)
    return refusal(error)


async def _http_error(request: Request, error: Exception) -> Response:
    """No such route, or not with this method."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    said = {404: f"there is no {path} here; there are {PATHS}", 405: f"{path} does not take {request.method[:20]}"}
    return json_response(error_document(RequestRefused(said.get(error.status_code, error.detail))), error.status_code)


async def _our_fault(_: Request, error: Exception) -> Response:
    fault = RequestRefused(f"internal error: {type(error).__name__}", status=500, kind="server_error")
    return json_response(error_document(fault), 500)
