"""What clients may ask, in OpenAI's words: bodies in, checked; a field we would have to ignore is refused by name."""

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
    "logprobs": (False,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "ignore_eos": (False,),
}
"""Fields that we do not implement, with the values that ask for nothing."""

Tokens = Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]
MAX_STOPS = 16


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    include_usage: bool = False


class Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of both kinds of request."""

    model: str | None = None
    max_tokens: Tokens | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=1 << 30)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)] | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def sampling(self) -> Sampling:
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(0, self.top_k or 0),
            seed=self.seed,
        )

    @property
    def stops(self) -> list[str]:
        """Stop strings. Raises RequestRefused for empty ones, which would stop everything, and for too many."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stops) > MAX_STOPS or not all(stops):
            raise RequestRefused(f"stop takes up to {MAX_STOPS} strings, none of them empty", param="stop")
        return stops

    @property
    def usage_wanted(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class Completion(Common, frozen=True, kw_only=True):
    """Body of /v1/completions."""

    prompt: str | list[Any]

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
    role: str
    content: str | list[Part]
    name: str | None = None

    def plain(self) -> dict[str, str]:
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": self.role, "content": text}


class ChatCompletion(Common, frozen=True, kw_only=True):
    """Body of /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1)]
    max_completion_tokens: Tokens | None = None


Body = TypeVar("Body", bound=Common)


def parse(raw: bytes, kind: type[Body]) -> Body:
    """Check a request's body. Raises RequestRefused with status 400, naming the field where there is one."""
    try:
        fields = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused(f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise RequestRefused("the body is not a JSON object")
    for name in list(fields):
        if name in WITHOUT_EFFECT or fields[name] is None or fields[name] in NEUTRAL.get(name, ()):
            del fields[name]
        elif name in NEUTRAL:
            raise RequestRefused(f"this engine does not implement {name}", param=name, code="unsupported_parameter")
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise RequestRefused(str(error), param=_field(str(error))) from error


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
