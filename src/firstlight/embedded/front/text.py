"""Text and tokens of one model: `tokenizer.json`, the end tokens, and the chat template."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from firstlight.embedded.errors import ModelNotUsable, RequestRefused
from firstlight.embedded.front.templates import Chat, ChatTemplate
from firstlight.embedded.front.token_bytes import TokenBytes
from firstlight.embedded.model.config import read_json, token_ids


class Text:
    """Encodes prompts and decodes answers."""

    def __init__(self, tokenizer: Tokenizer, end_tokens: tuple[int, ...], template: ChatTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.end_tokens = end_tokens
        self.token_bytes = TokenBytes(tokenizer)

    async def start(self) -> None:
        """Make the chat template ready. Raises ModelNotUsable if it is not valid."""
        if self._template is not None:
            await self._template.start()

    def end(self) -> None:
        if self._template is not None:
            self._template.end()

    async def render(self, messages: Chat) -> str:
        """A conversation as the model was trained to read it. Raises RequestRefused."""
        if self._template is None:
            raise RequestRefused("the model has no chat template; use /v1/completions", param="messages")
        return await self._template.render(messages)

    def encode(self, prompt: str) -> list[int]:
        """Tokens of a plain prompt, with the tokens the model wants in front of every text."""
        ids: list[int] = self._tokenizer.encode(prompt).ids
        return ids

    def encode_rendered(self, prompt: str) -> list[int]:
        """Tokens of a rendered conversation; the template itself writes all special tokens."""
        ids: list[int] = self._tokenizer.encode(prompt, add_special_tokens=False).ids
        return ids

    def decode(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text


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
    source = _read(file) if file.exists() else settings.get("chat_template")
    if isinstance(source, list):  # several by name: the one for plain chat is called default
        named = [entry for entry in source if isinstance(entry, dict) and entry.get("name") == "default"]
        source = named[0].get("template") if named else None
    if source is None:
        return None
    if not isinstance(source, str):
        raise ModelNotUsable(f"chat_template in {folder / 'tokenizer_config.json'} is not text")
    return ChatTemplate(source, _special_tokens(settings))


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelNotUsable(f"cannot read {file}: {error}") from error


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
