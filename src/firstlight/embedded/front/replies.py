"""What clients get, in OpenAI's words: documents for whole answers, events for pieces of a stream, and errors."""

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from firstlight.embedded.errors import RequestRefused
from firstlight.embedded.front.generation import Piece, Score
from firstlight.embedded.front.openai import Usage
from firstlight.embedded.front.token_bytes import TokenBytes

Document = dict[str, Any]

LEAST_LOGPROB = -9999.0
"""What OpenAI writes for the logarithm of nothing, which JSON cannot."""
GAP = "\0"
"""Stands for the text in an event that is prepared for every text."""


class Reply(Protocol):
    """The shape of one kind of answer."""

    def opening(self) -> bytes:
        """Events that a stream begins with."""
        ...

    def piece(self, piece: Piece) -> bytes: ...

    def closing(self, finish: str) -> bytes: ...

    def usage(self, usage: Usage) -> bytes:
        """The last event of a stream, for those who asked for it."""
        ...

    def whole(self, pieces: Sequence[Piece], finish: str, usage: Usage) -> Document: ...


class CompletionReply:
    """/v1/completions."""

    def __init__(self, model: str, token_bytes: TokenBytes, *, with_scores: bool) -> None:
        self._base = _base("cmpl", "text_completion", model)
        self._token_bytes = token_bytes
        self._with_scores = with_scores
        self._plain = _prepared(self._chunk(GAP, None, None))

    def opening(self) -> bytes:
        return b""

    def piece(self, piece: Piece) -> bytes:
        if self._with_scores:
            return event(self._chunk(piece.text, self._logprobs(piece.scores), None))
        return msgspec.json.encode(piece.text).join(self._plain)

    def closing(self, finish: str) -> bytes:
        return event(self._chunk("", None, finish))

    def usage(self, usage: Usage) -> bytes:
        return event(self._base | {"choices": [], "usage": usage.document()})

    def whole(self, pieces: Sequence[Piece], finish: str, usage: Usage) -> Document:
        logprobs = self._logprobs(_scores(pieces)) if self._with_scores else None
        return self._chunk(_text(pieces), logprobs, finish) | {"usage": usage.document()}

    def _chunk(self, text: str, logprobs: Document | None, finish: str | None) -> Document:
        choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}
        return self._base | {"choices": [choice]}

    def _logprobs(self, scores: Iterable[Score]) -> Document:
        """OpenAI's four lists; the chosen token is always among the alternatives told."""
        tokens, logprobs, alternatives, offsets = [], [], [], []
        for score in scores:
            tokens.append(self._name(score.token))
            logprobs.append(_finite(score.logprob))
            told = {self._name(other.token): _finite(other.logprob) for other in score.top}
            alternatives.append({tokens[-1]: logprobs[-1]} | told)
            offsets.append(score.start)
        return {
            "tokens": tokens,
            "token_logprobs": logprobs,
            "top_logprobs": alternatives,
            "text_offset": offsets,
        }

    def _name(self, token: int) -> str:
        """A token's text; of one that is no whole characters its bytes, so that no two tokens have one name."""
        raw = self._token_bytes(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


class ChatReply:
    """/v1/chat/completions."""

    def __init__(self, model: str, token_bytes: TokenBytes, *, with_scores: bool) -> None:
        self._base = _base("chatcmpl", "chat.completion", model)
        self._chunk_base = self._base | {"object": "chat.completion.chunk"}
        self._token_bytes = token_bytes
        self._with_scores = with_scores
        self._plain = _prepared(self._chunk({"content": GAP}, None, None))

    def opening(self) -> bytes:
        return event(self._chunk({"role": "assistant", "content": ""}, None, None))

    def piece(self, piece: Piece) -> bytes:
        if self._with_scores:
            return event(self._chunk({"content": piece.text}, self._logprobs(piece.scores), None))
        return msgspec.json.encode(piece.text).join(self._plain)

    def closing(self, finish: str) -> bytes:
        return event(self._chunk({}, None, finish))

    def usage(self, usage: Usage) -> bytes:
        return event(self._chunk_base | {"choices": [], "usage": usage.document()})

    def whole(self, pieces: Sequence[Piece], finish: str, usage: Usage) -> Document:
        logprobs = self._logprobs(_scores(pieces)) if self._with_scores else None
        message = {"role": "assistant", "content": _text(pieces), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}
        return self._base | {"choices": [choice], "usage": usage.document()}

    def _chunk(self, delta: Document, logprobs: Document | None, finish: str | None) -> Document:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self._chunk_base | {"choices": [choice]}

    def _logprobs(self, scores: Iterable[Score]) -> Document:
        content = []
        for score in scores:
            others = [self._token(other.token, other.logprob) for other in score.top]
            content.append(self._token(score.token, score.logprob) | {"top_logprobs": others})
        return {"content": content, "refusal": None}

    def _token(self, token: int, logprob: float) -> Document:
        raw = self._token_bytes(token)
        return {"token": raw.decode("utf-8", "replace"), "logprob": _finite(logprob), "bytes": list(raw)}


def error_document(error: RequestRefused) -> Document:
    """The body of every answer that is not a success."""
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}}


def event(document: Document) -> bytes:
    """A server-sent event."""
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


def _prepared(document: Document) -> tuple[bytes, bytes]:
    """An event without its text, in two parts: what comes before the text and what after."""
    before, _, after = event(document).partition(msgspec.json.encode(GAP))
    return before, after


def _base(prefix: str, kind: str, model: str) -> Document:
    return {"id": f"{prefix}-{secrets.token_hex(12)}", "object": kind, "created": int(time.time()), "model": model}


def _text(pieces: Iterable[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def _scores(pieces: Iterable[Piece]) -> list[Score]:
    return [score for piece in pieces for score in piece.scores]


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
