"""The routes on which LLM servers generate, and how to read what they generated."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from firstlight.core.clean import clean_text
from firstlight.supervise.questions.http_question import Reply

Fields = Mapping[str, Any]


TOKENS_MAX = 10**9
"""No server makes as many for one question; a count beyond it makes no sense."""


class Generated(NamedTuple):
    """What came back: `tokens` as the server counts them, else 1 if there is any text."""

    text: str
    tokens: int


class Route(NamedTuple):
    """One way to ask for tokens. `generated` gives None for a reply that is not of the route's kind at all."""

    path: str
    payload: Callable[[str, str, int], dict[str, object]]
    generated: Callable[[Fields], Generated | None]


def served_models(reply: Reply) -> tuple[str, ...]:
    """The names in a reply to `/v1/models`, empty if it lists none."""
    entries = reply.fields.get("data")
    if reply.status != 200 or not isinstance(entries, list):
        return ()
    names = (_text(_mapping(entry).get("id")) for entry in entries)
    return tuple(name for name in names if name)


def _completion(model: str, prompt: str, max_tokens: int) -> dict[str, object]:
    return {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}


def _chat(model: str, prompt: str, max_tokens: int) -> dict[str, object]:
    messages = [{"role": "user", "content": prompt}]
    return {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0}


def _sglang(_model: str, prompt: str, max_tokens: int) -> dict[str, object]:
    return {"text": prompt, "sampling_params": {"max_new_tokens": max_tokens, "temperature": 0}}


def _completed(fields: Fields) -> Generated | None:
    choice = _first_choice(fields)
    if "text" not in choice:
        return None
    return _counted(_text(choice["text"]), _mapping(fields.get("usage")).get("completion_tokens"))


def _answered(fields: Fields) -> Generated | None:
    """A reasoning model's first tokens are in `reasoning_content` (or `reasoning`), its content is null."""
    choice = _first_choice(fields)
    if "message" not in choice:
        return None
    message = _mapping(choice["message"])
    texts = (_text(message.get(name)) for name in ("content", "reasoning_content", "reasoning"))
    return _counted(next(filter(None, texts), ""), _mapping(fields.get("usage")).get("completion_tokens"))


def _sglang_generated(fields: Fields) -> Generated | None:
    if "text" not in fields:
        return None
    return _counted(_text(fields["text"]), _mapping(fields.get("meta_info")).get("completion_tokens"))


def _first_choice(fields: Fields) -> Fields:
    choices = fields.get("choices")
    return _mapping(choices[0]) if isinstance(choices, list) and choices else {}


def _counted(text: str, tokens: object) -> Generated:
    """An empty text with a count of one is a token too: many tokens print nothing."""
    if isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens <= TOKENS_MAX:
        return Generated(text, tokens)
    return Generated(text, 1 if text else 0)


def _mapping(value: object) -> Fields:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return clean_text(value) if isinstance(value, str) else ""


ROUTES = (
    Route("/v1/completions", _completion, _completed),
    Route("/v1/chat/completions", _chat, _answered),
    Route("/generate", _sglang, _sglang_generated),
)
