"""Seeking the first token, and later proof that tokens still come: when to ask, and what the answers mean."""

from collections.abc import Sequence

import msgspec

from firstlight.clock import Clock
from firstlight.core.gap import Gap
from firstlight.core.server import ServerCommand
from firstlight.core.vocabulary import GapReason
from firstlight.supervise.background import Background
from firstlight.supervise.questions.in_flight import requests_in_flight
from firstlight.supervise.questions.verify import Answer, AnswerKind, Asking

FIRST_TOKEN_S = 900.0
"""The first request may compile kernels for minutes (SGLang itself allows 600 s). Liveness judges long before."""

AGAIN_S = 1.0
"""Pause between questions while the server says that it is not ready."""

FINAL_AFTER_S = 10.0
"""An answer that no waiting will mend (a key is needed, not an LLM server) is believed once it stood this long."""

FINAL_KINDS = frozenset({AnswerKind.NEEDS_KEY, AnswerKind.WRONG_MODEL, AnswerKind.NOT_OPENAI})

_NO_FAILURE = frozenset({AnswerKind.TOKEN, AnswerKind.NOT_ASKED})
"""Answers that are nothing against the server: a question that failed inside firstlight is not one."""


class FirstToken:
    """Asks for the first token as soon as the port is open, and again until one came."""

    def __init__(self, command: ServerCommand, clock: Clock, *, prompt: str) -> None:
        self.last: Answer | None = None
        self._command = command
        self._clock = clock
        self._launched = clock.monotonic()
        self._prompt = prompt
        self._asking: Asking | None = None
        self._next_at = 0.0
        self._same_since = 0.0

    @property
    def pending_s(self) -> float:
        """How long the current question has been without an answer; 0 if none is out."""
        return self._asking.age_s if self._asking else 0.0

    @property
    def final(self) -> bool:
        """True if the last answer is one that no waiting will mend, and it has stood for a while."""
        if self.last is None or self.last.kind not in FINAL_KINDS:
            return False
        return self._clock.monotonic() - self._same_since >= FINAL_AFTER_S

    def poll(self, port: int, hosts: Sequence[str] = ()) -> Answer | None:
        """Ask if it is time; return an answer if one has just come.

        `port` is 0 while nobody listens; `hosts` are the addresses that it is bound to, where they are known.
        """
        now = self._clock.monotonic()
        if self._asking is None:
            if port and now >= self._next_at:
                self._asking = Asking(
                    self._command,
                    port=port,
                    prompt=self._prompt,
                    max_tokens=1,
                    deadline_s=FIRST_TOKEN_S,
                    launched=self._launched,
                    clock=self._clock,
                    hosts=hosts,
                )
            return None
        answer = self._asking.poll()
        if answer is None:
            return None
        self._asking = None
        self._next_at = now + AGAIN_S
        if self.last is None or self.last.kind != answer.kind:
            self._same_since = now
        self.last = answer
        return answer

    def hurry(self) -> None:
        """Ask at the next poll: the log has just said that the server is ready."""
        self._next_at = 0.0


class Completion:
    """A short completion for people to read, asked for once the first token is verified. It proves nothing more."""

    DEADLINE_S = 30.0

    def __init__(self, command: ServerCommand, clock: Clock, *, port: int, prompt: str, max_tokens: int) -> None:
        self.text = ""
        self.done = max_tokens <= 1
        self._asking: Asking | None = None
        if not self.done:
            self._asking = Asking(
                command,
                port=port,
                prompt=prompt,
                max_tokens=max_tokens,
                deadline_s=self.DEADLINE_S,
                launched=clock.monotonic(),
                clock=clock,
            )

    @property
    def pending_s(self) -> float:
        """How long it has been waited for; 0 once it has come."""
        return self._asking.age_s if self._asking and not self.done else 0.0

    def poll(self) -> None:
        """See whether it has come; after the deadline it never will."""
        answer = self._asking.poll() if self._asking and not self.done else None
        if answer is not None:
            self.done = True
            self.text = answer.token.text if answer.token else ""


class StillServing:
    """After the first token: how many requests are in flight, and a token of our own when nothing else tells.

    A server that is idle and one that hung while idle look the same from outside, and `/health` says 200 for both
    (vLLM answers it without asking the engine). So when nothing has moved for a while, one token is asked for; a
    question without an answer then counts as a request in flight, and liveness judges it like any other.
    """

    METRICS_EVERY_S = 2.0
    METRICS_DEADLINE_S = 2.0
    CANARY_DEADLINE_S = 120.0
    CANARY_COUNTS_AFTER_S = 3.0

    def __init__(self, command: ServerCommand, clock: Clock, *, canary_s: float) -> None:
        self._command = command
        self._clock = clock
        self._canary_s = canary_s
        self._in_flight: int | Gap = Gap(what="requests in flight", reason=GapReason.NOT_SUPPORTED)
        self._metrics: Background[int | Gap] | None = None
        self._next_metrics = 0.0
        self._canary: Asking | None = None
        self._proved_at = clock.monotonic()
        self.failed: Answer | None = None

    def poll(self, port: int, *, quiet_s: float, clients: int) -> int | Gap:
        """Requests in flight now, our own unanswered question included.

        `quiet_s` is the time without a progress signal, `clients` the connections of others to the port: with
        somebody waiting the question is asked early.
        """
        self._poll_metrics(port)
        self._poll_canary(port, quiet_s, clients)
        waiting = self._canary is not None and self._canary.age_s >= self.CANARY_COUNTS_AFTER_S
        if waiting or self.failed is not None:
            return max(1, self._in_flight) if isinstance(self._in_flight, int) else 1
        return self._in_flight

    @property
    def canary_age_s(self) -> float:
        """How long our own question has been without an answer; 0 if none is out."""
        return self._canary.age_s if self._canary else 0.0

    def _poll_metrics(self, port: int) -> None:
        now = self._clock.monotonic()
        if self._metrics is not None:
            result = self._metrics.poll()
            if result is not None:
                self._in_flight = result
                self._metrics = None
                self._next_metrics = now + self.METRICS_EVERY_S
        elif port and now >= self._next_metrics:
            self._metrics = Background(
                lambda: requests_in_flight(self._command, port, self.METRICS_DEADLINE_S), "requests in flight"
            )

    def _poll_canary(self, port: int, quiet_s: float, clients: int) -> None:
        now = self._clock.monotonic()
        if self._canary is not None:
            answer = self._canary.poll()
            if answer is not None:
                self._canary = None
                self._proved_at = now
                self.failed = None if answer.kind in _NO_FAILURE else answer
            return
        if not port or self._canary_s <= 0:
            return
        wait_s = min(self._canary_s, 10.0) if clients else self._canary_s
        if quiet_s >= min(wait_s, 10.0) and now - self._proved_at >= wait_s:
            self._canary = Asking(
                self._command,
                port=port,
                prompt="Hello",
                max_tokens=1,
                deadline_s=self.CANARY_DEADLINE_S,
                launched=now,
                clock=self._clock,
            )


class Questions:
    """Every question that the watcher asks of the server: for a first token, for something to show, for life."""

    def __init__(
        self, command: ServerCommand, clock: Clock, *, prompt: str, max_tokens: int, canary_s: float
    ) -> None:
        self.first = FirstToken(command, clock, prompt=prompt)
        self.completion: Completion | None = None
        self._still: StillServing | None = None
        self._command = command
        self._clock = clock
        self._prompt = prompt
        self._max_tokens = max_tokens
        self._canary_s = canary_s

    @property
    def serving(self) -> bool:
        """True once the first token was verified."""
        return self._still is not None

    @property
    def completing(self) -> bool:
        """True while the completion that is only for show is still being written."""
        return self.completion is not None and not self.completion.done

    @property
    def waiting_s(self) -> float:
        """How long a question of ours has been without an answer; 0 if none is out."""
        if self._still is None:
            return self.first.pending_s
        return max(self._still.canary_age_s, self.completion.pending_s if self.completion else 0.0)

    def poll(self, port: int, hosts: Sequence[str] = ()) -> Answer | None:
        """Ask on; gives an answer to the question for the first token when one has just come.

        `hosts` are the addresses that the port is bound to. Once one of them gave a token, all goes there.
        """
        if self.completion is not None:
            self.completion.poll()
        if self.serving:
            return None
        answer = self.first.poll(port, hosts)
        if answer is not None and answer.kind == AnswerKind.TOKEN:
            command = msgspec.structs.replace(self._command, host=answer.host)
            self._still = StillServing(command, self._clock, canary_s=self._canary_s)
            self.completion = Completion(
                command, self._clock, port=port, prompt=self._prompt, max_tokens=self._max_tokens
            )
        return answer

    def in_flight(self, port: int, *, quiet_s: float, clients: int) -> int | Gap:
        """Requests in flight, our own unanswered one included; 0 before the server serves."""
        return self._still.poll(port, quiet_s=quiet_s, clients=clients) if self._still else 0
