"""Proof that a server serves: ask it for a token, and say in one sentence what came instead.

`/health` proves little: vLLM answers 200 while its engine hangs, SGLang up to 0.4.6 from the moment the port is open.
So the questions end with a real generation: OpenAI completions, chat completions, or SGLang's own `/generate`,
whichever the server has.
"""

from enum import StrEnum
from math import isfinite

from firstlight.clock import Clock, Deadline, SystemClock
from firstlight.core.gap import Gap, Seen
from firstlight.core.record import Record
from firstlight.core.report import FirstToken
from firstlight.core.server import ServerCommand
from firstlight.core.vocabulary import GapReason
from firstlight.engines import profile
from firstlight.supervise import generation, sentences
from firstlight.supervise.background import Background
from firstlight.supervise.http_question import Failure, Reply, exchange

HEALTH_S = 2.0
MODELS_S = 5.0
"""Questions that any server answers at once; longer than this means that nobody answers."""

_ROUTE_MISSING = frozenset({404, 405, 501})
_NOT_OFFERED = _ROUTE_MISSING | {400, 422}
_KEY_WANTED = frozenset({401, 403})
_SYSTEM_CLOCK = SystemClock()


class AnswerKind(StrEnum):
    """What a server made of the question for a token."""

    TOKEN = "token"
    REFUSED = "refused"
    """Nobody listens on the port."""
    NOT_READY = "not ready"
    """It says itself (503) that it is not ready."""
    NO_ANSWER = "no answer"
    """It accepts the question and says nothing."""
    WRONG_MODEL = "wrong model"
    NEEDS_KEY = "needs key"
    NOT_OPENAI = "not an LLM server"
    ERROR = "error"


class Answer(Record):
    """What came back. `what` is one plain sentence and a way out; `status` is 0 where there was no HTTP reply.

    `health` is the status of `/health` just before, None if it gave none.
    """

    kind: AnswerKind
    what: str
    status: int = 0
    health: int | None = None
    token: FirstToken | None = None


def ask(
    command: ServerCommand,
    *,
    port: int,
    prompt: str,
    max_tokens: int,
    deadline_s: float,
    launched: float,
    clock: Clock,
) -> Answer:
    """Ask a server for a token, within `deadline_s` seconds in all. `launched` is on the monotonic clock."""
    question = _Question(command, port, Deadline(clock, deadline_s, "the first token"), clock)
    return question.preliminaries() or question.generate(prompt, max_tokens, launched)


class Asking:
    """`ask` in a thread that can be abandoned."""

    def __init__(
        self,
        command: ServerCommand,
        *,
        port: int,
        prompt: str,
        max_tokens: int,
        deadline_s: float,
        launched: float,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._answer: Background[Answer] = Background(
            lambda: ask(
                command,
                port=port,
                prompt=prompt,
                max_tokens=max_tokens,
                deadline_s=deadline_s,
                launched=launched,
                clock=clock,
            ),
            "asking for a token",
        )

    def poll(self) -> Answer | None:
        """The answer, None while there is none."""
        return self._answer.poll()

    @property
    def age_s(self) -> float:
        """Seconds since the question was asked."""
        return self._clock.monotonic() - self._began


class _Question:
    """One round of questions to one server."""

    def __init__(self, command: ServerCommand, port: int, deadline: Deadline, clock: Clock) -> None:
        self._command = command
        self._port = port
        self._deadline = deadline
        self._clock = clock
        self._url = sentences.url(command.host, port)
        self._health: int | None = None
        self._served: tuple[str, ...] = ()

    def preliminaries(self) -> Answer | None:
        """`/health` and `/v1/models`; an answer if these tell already that there will be no token."""
        health = self._get("/health", HEALTH_S)
        if isinstance(health, Reply):
            self._health = health.status
            if health.status == 503 and health.fields:
                return self._not_ready(health)
        elif health is not Failure.NO_REPLY and health is not Failure.CLOSED:
            return self._failed(health)
        models = self._get("/v1/models", MODELS_S)
        if isinstance(models, Failure):
            # A front that answered /health may be busy with a list of models; one that answered nothing is not there.
            return None if isinstance(health, Reply) and models is Failure.NO_REPLY else self._failed(models)
        if models.status in _KEY_WANTED:
            return self._answer(AnswerKind.NEEDS_KEY, sentences.needs_key(self._url, self._command), models.status)
        self._served = generation.served_models(models)
        return None

    def generate(self, prompt: str, max_tokens: int, launched: float) -> Answer:
        """Ask on each route that may generate, until one of them does."""
        model = self._model()
        refusals: list[Reply] = []
        for route in generation.ROUTES:
            asked = self._clock.monotonic()
            reply = exchange(
                self._command.host,
                self._port,
                route.path,
                deadline=self._deadline,
                key=self._command.api_key,
                payload=route.payload(model, prompt, max_tokens),
            )
            if isinstance(reply, Failure):
                return self._no_token(reply)
            if reply.status == 200:
                now = self._clock.monotonic()
                made = route.generated(reply.fields)
                token = FirstToken(
                    prompt=prompt,
                    text=made.text,
                    model=model,
                    tokens=made.tokens,
                    after_launch_s=now - launched,
                    request_s=now - asked,
                )
                return self._judge(token, reply)
            if not self._may_have_another_route(reply):
                return self._refused(reply, model)
            refusals.append(reply)
        return self._without_route(refusals)

    def _model(self) -> str:
        return self._command.served_name or next(iter(self._served), "") or self._command.model or "default"

    def _get(self, path: str, seconds: float) -> Reply | Failure:
        deadline = Deadline(self._clock, min(seconds, self._deadline.left), path)
        return exchange(self._command.host, self._port, path, deadline=deadline, key=self._command.api_key)

    def _answer(self, kind: AnswerKind, what: str, status: int = 0, token: FirstToken | None = None) -> Answer:
        return Answer(kind=kind, what=what, status=status, health=self._health, token=token)

    def _judge(self, token: FirstToken, reply: Reply) -> Answer:
        if token.tokens < 1:
            return self._answer(AnswerKind.ERROR, sentences.no_token_in_reply(self._url), reply.status)
        return self._answer(AnswerKind.TOKEN, sentences.token(token), reply.status, token)

    def _may_have_another_route(self, reply: Reply) -> bool:
        return reply.status in _NOT_OFFERED and not sentences.names_unknown_model(reply)

    def _refused(self, reply: Reply, model: str) -> Answer:
        if reply.status in _KEY_WANTED:
            return self._answer(AnswerKind.NEEDS_KEY, sentences.needs_key(self._url, self._command), reply.status)
        if reply.status in _NOT_OFFERED:
            what = sentences.wrong_model(self._url, model, self._served)
            return self._answer(AnswerKind.WRONG_MODEL, what, reply.status)
        if reply.status == 503:
            return self._not_ready(reply)
        return self._answer(AnswerKind.ERROR, sentences.server_error(self._url, reply, self._command), reply.status)

    def _without_route(self, refusals: list[Reply]) -> Answer:
        said = next((reply for reply in refusals if reply.status not in _ROUTE_MISSING), None)
        if said is None:
            status = refusals[0].status
            return self._answer(AnswerKind.NOT_OPENAI, sentences.not_an_llm_server(self._url, status), status)
        return self._answer(AnswerKind.ERROR, sentences.server_error(self._url, said, self._command), said.status)

    def _not_ready(self, reply: Reply) -> Answer:
        kind = AnswerKind.ERROR if reply.fields.get("status") == "failed" else AnswerKind.NOT_READY
        return self._answer(kind, sentences.not_ready(self._url, reply, self._command), reply.status)

    def _failed(self, failure: Failure) -> Answer:
        kind = {
            Failure.REFUSED: AnswerKind.REFUSED,
            Failure.UNREACHABLE: AnswerKind.REFUSED,
            Failure.NO_REPLY: AnswerKind.NO_ANSWER,
            Failure.CLOSED: AnswerKind.ERROR,
            Failure.NOT_HTTP: AnswerKind.NOT_OPENAI,
        }[failure]
        return self._answer(kind, sentences.failure(self._url, failure))

    def _no_token(self, failure: Failure) -> Answer:
        if failure is Failure.NO_REPLY:
            what = sentences.hung(self._url, self._health, self._deadline.seconds)
            return self._answer(AnswerKind.NO_ANSWER, what)
        return self._failed(failure)


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
            if isfinite(value):
                values.append(value)
    return values
