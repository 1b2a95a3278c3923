"""The bytes that one token stands for, which need not be whole characters."""

import re

from tokenizers import Tokenizer

BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""How tokenizers that come from SentencePiece write a byte that is no token of its own."""
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""How they write a space."""


class TokenBytes:
    """Asks the tokenizer once a token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        decoder = tokenizer.decoder
        self._byte_level = decoder is not None and b"ByteLevel" in decoder.__getstate__()
        self._known: dict[int, bytes] = {}

    def __call__(self, token: int) -> bytes:
        """The bytes of a token; none for a number that is no token."""
        known = self._known.get(token)
        if known is None:
            name: str = self._tokenizer.id_to_token(token) or ""
            known = self._known[token] = _byte_level(name) if self._byte_level else _sentence_piece(name)
        return known


def _byte_level(name: str) -> bytes:
    """GPT-2's way: a printable character for each byte. A name with others in it was added as it is."""
    try:
        return bytes(BYTE_OF[letter] for letter in name)
    except KeyError:
        return name.encode()


def _sentence_piece(name: str) -> bytes:
    byte = BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace(SPACE, " ").encode()


def _letters() -> dict[str, int]:
    """Latin-1's visible characters stand for themselves, the other bytes for the characters from 256 on, in order."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + index): byte for index, byte in enumerate(others)}


BYTE_OF = _letters()
