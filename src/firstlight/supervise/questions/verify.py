"""Proof that a server serves: ask it for a token, and say in one sentence what came instead.

`/health` proves little: vLLM answers 200 while its engine hangs, SGLang up to 0.4.6 from the moment the port is open.
So the questions end with a real generation: OpenAI completions, chat completions, or SGLang's own `/generate`,
whichever the server has.
"""

from collections.abc import Sequence
from enum import StrEnum

from firstlight.clock import Clock, Deadline
from firstlight.core.clean import clean_text
from firstlight.core.gap import Gap
from firstlight.core.record import Record
from firstlight.core.report import FirstToken
from firstlight.core.server import ServerCommand
from firstlight.supervise.background import Background
from firstlight.supervise.questions import generation, sentences
from firstlight.supervise.questions.generation import Generated
from firstlight.supervise.questions.http_question import Failure, Reply, exchange, reachable
from firstlight.supervise.questions.sentences import Saying

HEALTH_S = 2.0
MODELS_S = 5.0
"""Questions that any server answers at once; longer than this means that nobody answers."""
TEXT_CHARACTERS = 20_000
"""As much of what was generated as is kept."""

_ROUTE_MISSING = frozenset({404, 405, 501})
_NOT_OFFERED = _ROUTE_MISSING | {400, 422}
_KEY_WANTED = frozenset({401, 403})


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
    """It is HTTP, but no route generates."""
    UNREADABLE = "unreadable answer"
    """200, but not JSON, or not a completion."""
    NO_TOKEN = "no token"
    """200 with a completion, and nothing in it."""
    REDIRECTED = "redirected"
    CLOSED = "closed"
    """It closes the connection without a reply."""
    ERROR = "error"
    """It answers with an error, or says that its start has failed."""
    NOT_ASKED = "not asked"
    """The question failed inside firstlight, and says nothing of the server."""


class Answer(Record):
    """What came back: one plain sentence (`fact`), a way out, and the server's own words, short and redacted.

    `host` is the address that the question went to. `status` is 0 where there was no HTTP reply, `health` the status
    of `/health` just before, None if it gave none.
    """

    kind: AnswerKind
    fact: str
    advice: str = ""
    said: str = ""
    host: str = ""
    status: int = 0
    health: int | None = None
    token: FirstToken | None = None

    @property
    def what(self) -> str:
        """The sentence as people read it: what is the case, in whose words, and the way out."""
        said = f": {self.said}" if self.said else ""
        return f"{self.fact}{said}{'; ' if self.advice else ''}{self.advice}"


def ask(
    command: ServerCommand,
    *,
    port: int,
    prompt: str,
    max_tokens: int,
    deadline_s: float,
    launched: float,
    clock: Clock,
    hosts: Sequence[str] = (),
) -> Answer:
    """Ask a server for a token, within `deadline_s` seconds in all. `launched` is on the monotonic clock.

    `hosts` are the addresses that its socket is bound to, tried in order until one is not refused. Where they are not
    known, the command's host is tried, then this machine's own.
    """
    question = _Question(command, hosts, port, Deadline(clock, deadline_s, "the first token"), clock)
    return question.preliminaries() or question.generate(clean_text(prompt), max_tokens, launched)


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
        hosts: Sequence[str] = (),
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
                hosts=hosts,
            ),
            "asking for a token",
        )

    def poll(self) -> Answer | None:
        """The answer, None while there is none."""
        answer = self._answer.poll()
        if isinstance(answer, Gap):
            return Answer(kind=AnswerKind.NOT_ASKED, **sentences.not_asked(answer.detail)._asdict())
        return answer

    @property
    def age_s(self) -> float:
        """Seconds since the question was asked."""
        return self._clock.monotonic() - self._began


class _Question:
    """One round of questions to one server."""

    def __init__(
        self, command: ServerCommand, hosts: Sequence[str], port: int, deadline: Deadline, clock: Clock
    ) -> None:
        self._command = command
        self._hosts = reachable(hosts) or reachable((command.host, "127.0.0.1", "::1"))
        self._host = self._hosts[0]
        self._port = port
        self._deadline = deadline
        self._clock = clock
        self._health: int | None = None
        self._served: tuple[str, ...] = ()

    def preliminaries(self) -> Answer | None:
        """`/health` and `/v1/models`; an answer if these tell already that there will be no token."""
        health = self._find_health()
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
            return self._needs_key(models)
        self._served = generation.served_models(models)
        return None

    def generate(self, prompt: str, max_tokens: int, launched: float) -> Answer:
        """Ask on each route that may generate, until one of them does."""
        model = self._model()
        refusals: list[Reply] = []
        for route in generation.ROUTES:
            asked = self._clock.monotonic()
            reply = exchange(
                self._host,
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
                if made is None or made.tokens < 1:
                    return self._nothing_made(reply, made)
                token = FirstToken(
                    prompt=prompt,
                    text=made.text[:TEXT_CHARACTERS],
                    model=model[: sentences.QUOTED_CHARACTERS],
                    tokens=made.tokens,
                    after_launch_s=now - launched,
                    request_s=now - asked,
                )
                return self._answer(AnswerKind.TOKEN, sentences.token(token), reply.status, token)
            if not self._may_have_another_route(reply):
                return self._refused(reply, model)
            refusals.append(reply)
        return self._without_route(refusals)

    @property
    def _url(self) -> str:
        return sentences.url(self._host, self._port)

    def _model(self) -> str:
        known = self._command.served_name or next(iter(self._served), "") or self._command.model or "default"
        return clean_text(known)

    def _find_health(self) -> Reply | Failure:
        """`/health` at the first address where somebody listens; that address is kept for what follows."""
        found: Reply | Failure = Failure.REFUSED
        for host in self._hosts:
            self._host = host
            found = self._get("/health", HEALTH_S)
            if found is not Failure.REFUSED and found is not Failure.UNREACHABLE:
                return found
        self._host = self._hosts[0]
        return found

    def _get(self, path: str, seconds: float) -> Reply | Failure:
        deadline = Deadline(self._clock, min(seconds, self._deadline.left), path)
        return exchange(self._host, self._port, path, deadline=deadline, key=self._command.api_key)

    def _answer(self, kind: AnswerKind, saying: Saying, status: int = 0, token: FirstToken | None = None) -> Answer:
        return Answer(kind=kind, **saying._asdict(), host=self._host, status=status, health=self._health, token=token)

    def _nothing_made(self, reply: Reply, made: Generated | None) -> Answer:
        if made is None:
            saying = sentences.unreadable(self._url, reply, self._command)
            return self._answer(AnswerKind.UNREADABLE, saying, reply.status)
        return self._answer(AnswerKind.NO_TOKEN, sentences.no_token(self._url, reply, self._command), reply.status)

    def _may_have_another_route(self, reply: Reply) -> bool:
        return reply.status in _NOT_OFFERED and not sentences.names_unknown_model(reply)

    def _refused(self, reply: Reply, model: str) -> Answer:
        if reply.status in _KEY_WANTED:
            return self._needs_key(reply)
        if reply.status in _NOT_OFFERED:
            saying = sentences.wrong_model(self._url, model, self._served)
            return self._answer(AnswerKind.WRONG_MODEL, saying, reply.status)
        if reply.status == 503:
            return self._not_ready(reply)
        if 300 <= reply.status < 400:
            return self._answer(AnswerKind.REDIRECTED, sentences.redirected(self._url, reply), reply.status)
        return self._error(reply)

    def _without_route(self, refusals: list[Reply]) -> Answer:
        said = next((reply for reply in refusals if reply.status not in _ROUTE_MISSING), None)
        if said is None:
            status = refusals[0].status
            return self._answer(AnswerKind.NOT_OPENAI, sentences.not_an_llm_server(self._url, status), status)
        return self._error(said)

    def _error(self, reply: Reply) -> Answer:
        return self._answer(AnswerKind.ERROR, sentences.server_error(self._url, reply, self._command), reply.status)

    def _needs_key(self, reply: Reply) -> Answer:
        return self._answer(AnswerKind.NEEDS_KEY, sentences.needs_key(self._url, reply, self._command), reply.status)

    def _not_ready(self, reply: Reply) -> Answer:
        if reply.fields.get("status") == "failed":
            saying = sentences.failed_start(self._url, reply, self._command)
            return self._answer(AnswerKind.ERROR, saying, reply.status)
        saying = sentences.not_ready(self._url, reply, self._command)
        return self._answer(AnswerKind.NOT_READY, saying, reply.status)

    def _failed(self, failure: Failure) -> Answer:
        kind = {
            Failure.REFUSED: AnswerKind.REFUSED,
            Failure.UNREACHABLE: AnswerKind.REFUSED,
            Failure.NO_REPLY: AnswerKind.NO_ANSWER,
            Failure.CLOSED: AnswerKind.CLOSED,
            Failure.NOT_HTTP: AnswerKind.NOT_OPENAI,
        }[failure]
        return self._answer(kind, sentences.failure(self._url, failure))

    def _no_token(self, failure: Failure) -> Answer:
        if failure is Failure.NO_REPLY:
            saying = sentences.hung(self._url, self._health, self._deadline.seconds)
            return self._answer(AnswerKind.NO_ANSWER, saying)
        return self._failed(failure)
