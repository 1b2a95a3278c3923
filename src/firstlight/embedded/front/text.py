"""Text and tokens of one model: `tokenizer.json`, the end tokens, and the chat template.

Chat templates come with the model and are programs; they run in jinja2's immutable sandbox.
"""

import datetime
import json
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from firstlight.embedded.errors import ModelNotUsable, RequestRefused
from firstlight.embedded.model.config import read_json, token_ids

Chat = list[dict[str, str]]


class Text:
    """Encodes prompts and decodes answers."""

    def __init__(self, tokenizer: Tokenizer, end_tokens: tuple[int, ...], template: "ChatTemplate | None") -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.end_tokens = end_tokens

    def encode(self, prompt: str) -> list[int]:
        """Tokens of a plain prompt, with the tokens the model wants in front of every text."""
        ids: list[int] = self._tokenizer.encode(prompt).ids
        return ids

    def encode_chat(self, messages: Chat) -> list[int]:
        """Tokens of a conversation; the template itself writes all special tokens."""
        if self._template is None:
            raise RequestRefused("the model has no chat template; use /v1/completions", param="messages")
        ids: list[int] = self._tokenizer.encode(self._template.render(messages), add_special_tokens=False).ids
        return ids

    def decode(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text


class ChatTemplate:
    """A compiled template with the names that templates rely on."""

    def __init__(self, source: str, variables: dict[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        self._template = environment.from_string(source)
        self._variables = variables

    def render(self, messages: Chat) -> str:
        """The conversation as the model was trained to read it. Raises RequestRefused if the template objects."""
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._variables)
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
            raise RequestRefused(f"the chat template refuses these messages: {error}", param="messages") from error


def load_text(folder: Path) -> Text:
    """Read tokenizer, end tokens and template of a model folder. Raises ModelNotUsable, naming the file."""
    settings = _optional_json(folder / "tokenizer_config.json")
    return Text(_tokenizer(folder / "tokenizer.json"), _end_tokens(folder), _template(folder, settings))


def _tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        raise ModelNotUsable(
            f"{path.parent} has no tokenizer.json", "Copy it from the model's original, or convert its tokenizer"
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception for every kind of damage
        raise ModelNotUsable(f"{path} is not a usable tokenizer: {error}", "Copy or download it again") from error


def _end_tokens(folder: Path) -> tuple[int, ...]:
    """generation_config.json is what the model's makers decode with; config.json is the older place."""
    generation = _optional_json(folder / "generation_config.json").get("eos_token_id")
    return token_ids(generation if generation is not None else read_json(folder / "config.json").get("eos_token_id"))


def _template(folder: Path, settings: dict[str, Any]) -> ChatTemplate | None:
    file = folder / "chat_template.jinja"
    source = file.read_text() if file.exists() else settings.get("chat_template")
    if isinstance(source, list):  # several by name: the one for plain chat is called default
        source = next((entry["template"] for entry in source if entry.get("name") == "default"), None)
    if source is None:
        return None
    try:
        return ChatTemplate(source, _special_tokens(settings))
    except jinja2.TemplateError as error:
        raise ModelNotUsable(f"the chat template in {folder} is not valid jinja: {error}") from error


def _special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """The texts of bos_token, eos_token …; files write a string or an object with `content`."""
    tokens = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = settings.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            tokens[name] = text
    return tokens


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _to_json(value: object, indent: int | None = None) -> str:
    """jinja2's own filter escapes for HTML, which would change the prompt."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)
