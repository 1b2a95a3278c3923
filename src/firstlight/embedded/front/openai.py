"""What clients may ask, in OpenAI's words: bodies in, checked; a field we would have to ignore is refused by name."""

import json
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from firstlight.embedded.errors import RequestRefused
from firstlight.embedded.messages import Sampling

WITHOUT_EFFECT = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
"""Fields that never change the text."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logit_bias": ({},),
    "repetition_penalty": (1,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "min_tokens": (0,),
}
"""Fields that we do not implement, with the values that ask for nothing."""

MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
MAX_LOGPROBS = 20
MAX_LOOKED_THROUGH = 1 << 16
"""Bytes of a body that is no JSON in which the cause is looked for."""

Tokens = Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]
Token = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
Alternatives = Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of both kinds of request."""

    model: str | None = None
    max_tokens: Tokens | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=1 << 30)] | None = None
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stop: str | list[str] | None = None
    stop_token_ids: Annotated[list[Token], msgspec.Meta(max_length=64)] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def alternatives(self) -> int | None:
        """How many likeliest tokens to tell beside each chosen one; None: tell no scores at all."""
        raise NotImplementedError

    @property
    def sampling(self) -> Sampling:
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(0, self.top_k or 0),
            min_p=self.min_p or 0.0,
            seed=self.seed,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            logprobs=self.alternatives,
        )

    @property
    def stops(self) -> list[str]:
        """Stop strings. Raises RequestRefused for empty ones, which would stop everything, and for too many."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stops) > MAX_STOPS or not all(0 < len(stop) <= MAX_STOP_LENGTH for stop in stops):
            raise RequestRefused(
                f"stop takes up to {MAX_STOPS} strings of 1 to {MAX_STOP_LENGTH} characters", param="stop"
            )
        return stops

    def check(self) -> None:
        """What no single field can tell. Raises RequestRefused."""
        if self.stream_options is not None and not self.stream:
            raise RequestRefused("stream_options needs stream to be true", param="stream_options")
        _ = self.stops, self.alternatives

    @property
    def usage_wanted(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class Completion(Common, frozen=True, kw_only=True):
    """Body of /v1/completions."""

    prompt: str | list[Any]
    logprobs: Alternatives | None = None

    @property
    def alternatives(self) -> int | None:
        return self.logprobs

    @property
    def prompt_text_or_tokens(self) -> str | list[int]:
        """One prompt: a string, a list of one string, or a list of token ids."""
        if isinstance(self.prompt, str):
            return self.prompt
        if len(self.prompt) == 1 and isinstance(self.prompt[0], str):
            return self.prompt[0]
        if all(type(token) is int for token in self.prompt):
            return self.prompt
        raise RequestRefused("prompt takes one string or one list of token ids", param="prompt")


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of a message; this engine reads text only."""

    type: Literal["text"]
    text: str


class ChatMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`refusal` and the empty fields are what clients send back of our own answers."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]
    name: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: Annotated[list[Any], msgspec.Meta(max_length=0)] | None = None
    tool_calls: Annotated[list[Any], msgspec.Meta(max_length=0)] | None = None

    def plain(self) -> dict[str, str]:
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": self.role, "content": text}


class ChatCompletion(Common, frozen=True, kw_only=True):
    """Body of /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1)]
    max_completion_tokens: Tokens | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None

    @property
    def alternatives(self) -> int | None:
        if self.top_logprobs and not self.logprobs:
            raise RequestRefused("top_logprobs needs logprobs to be true", param="top_logprobs")
        return self.top_logprobs or 0 if self.logprobs else None


Body = TypeVar("Body", bound=Common)


def parse(raw: bytes, kind: type[Body]) -> Body:
    """Check a request's body. Raises RequestRefused with status 400, naming the field where there is one."""
    fields = _decoded(raw)
    if not isinstance(fields, dict):
        raise RequestRefused("the body is not a JSON object")
    for name in list(fields):
        if name in WITHOUT_EFFECT or fields[name] is None or _asks_for_nothing(name, fields[name]):
            del fields[name]
        elif name in NEUTRAL:
            raise RequestRefused(f"this engine does not implement {name}", param=name, code="unsupported_parameter")
    try:
        body = msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise RequestRefused(str(error), param=_field(str(error))) from error
    body.check()
    return body


def _decoded(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        field = _field_without_number(raw)
        what = f"{field} is not a finite number" if field else f"the body is not JSON: {error}"
        raise RequestRefused(what, param=field) from error


def _field_without_number(raw: bytes) -> str | None:
    """The field that has NaN, an infinity or a number too large for a float, none of which is JSON."""
    if len(raw) > MAX_LOOKED_THROUGH:
        return None
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    return next((key for key, value in fields.items() if isinstance(value, float) and not math.isfinite(value)), None)


def _asks_for_nothing(name: str, value: Any) -> bool:
    """Whether a value is the neutral one; True is no 1 here."""
    same_kind = (neutral for neutral in NEUTRAL.get(name, ()) if isinstance(value, bool) == isinstance(neutral, bool))
    return any(value == neutral for neutral in same_kind)


def _field(message: str) -> str | None:
    """The field that msgspec names: "… - at `$.temperature`" or "… unknown field `foo`"."""
    _, found, rest = message.rpartition("`$.")
    if not found:
        _, found, rest = message.rpartition("field `")
    return rest.partition("`")[0] or None if found else None


@dataclass(frozen=True)
class Usage:
    """Tokens in and out."""

    prompt: int
    completion: int

    def document(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        }
