"""What clients get, in OpenAI's words: documents for whole answers, for pieces of a stream, and for errors."""

import secrets
import time
from typing import Any, Protocol

from firstlight.embedded.errors import RequestRefused
from firstlight.embedded.front.openai import Usage

Document = dict[str, Any]


class Reply(Protocol):
    """The shape of one kind of answer."""

    def opening(self) -> list[Document]:
        """Pieces that a stream begins with."""
        ...

    def piece(self, text: str) -> Document: ...

    def closing(self, finish: str) -> Document: ...

    def usage(self, usage: Usage) -> Document:
        """The last piece of a stream, for those who asked for it."""
        ...

    def whole(self, text: str, finish: str, usage: Usage) -> Document: ...


class CompletionReply:
    """/v1/completions."""

    def __init__(self, model: str) -> None:
        self._base = _base("cmpl", "text_completion", model)

    def opening(self) -> list[Document]:
        return []

    def piece(self, text: str) -> Document:
        return self._base | {"choices": [self._choice(text, None)]}

    def closing(self, finish: str) -> Document:
        return self._base | {"choices": [self._choice("", finish)]}

    def usage(self, usage: Usage) -> Document:
        return self._base | {"choices": [], "usage": usage.document()}

    def whole(self, text: str, finish: str, usage: Usage) -> Document:
        return self._base | {"choices": [self._choice(text, finish)], "usage": usage.document()}

    def _choice(self, text: str, finish: str | None) -> Document:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}


class ChatReply:
    """/v1/chat/completions."""

    def __init__(self, model: str) -> None:
        self._base = _base("chatcmpl", "chat.completion", model)
        self._chunk = self._base | {"object": "chat.completion.chunk"}

    def opening(self) -> list[Document]:
        return [self._delta({"role": "assistant", "content": ""}, None)]

    def piece(self, text: str) -> Document:
        return self._delta({"content": text}, None)

    def closing(self, finish: str) -> Document:
        return self._delta({}, finish)

    def usage(self, usage: Usage) -> Document:
        return self._chunk | {"choices": [], "usage": usage.document()}

    def whole(self, text: str, finish: str, usage: Usage) -> Document:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return self._base | {"choices": [choice], "usage": usage.document()}

    def _delta(self, delta: Document, finish: str | None) -> Document:
        return self._chunk | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}


def error_document(error: RequestRefused) -> Document:
    """The body of every answer that is not a success."""
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}}


def _base(prefix: str, kind: str, model: str) -> Document:
    return {"id": f"{prefix}-{secrets.token_hex(12)}", "object": kind, "created": int(time.time()), "model": model}
