"""Text from tokens: streamed pieces, stop strings, the bytes of a token."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from firstlight.embedded.front.detokenize import TextStream
from firstlight.embedded.front.text import load_text
from firstlight.embedded.front.token_bytes import TokenBytes

bytes_as_tokens = st.lists(st.integers(0, 255), max_size=40)


def decode(tokens: list[int]) -> str:
    """A token is a byte."""
    return bytes(tokens).decode("utf-8", "replace")


@given(text=st.text(max_size=40))
def test_pieces_are_whole_characters_and_make_the_text(text: str) -> None:
    stream = TextStream(decode, [])
    pieces = [stream.push(token) for token in text.encode()]
    assert "".join(pieces) + stream.flush() == text
    assert "\N{REPLACEMENT CHARACTER}" in text or all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces)


@given(tokens=bytes_as_tokens)
def test_even_broken_bytes_lose_nothing_that_was_shown(tokens: list[int]) -> None:
    stream = TextStream(decode, [])
    shown = "".join(stream.push(token) for token in tokens) + stream.flush()
    assert shown == decode(tokens)


@given(text=st.text("abé", max_size=30), stops=st.lists(st.text("abé", min_size=1, max_size=4), max_size=3))
def test_a_stop_string_and_what_follows_is_never_shown(text: str, stops: list[str]) -> None:
    stream = TextStream(decode, stops)
    shown = ""
    for token in text.encode():
        shown += stream.push(token)
        if stream.stopped:
            break
    else:
        shown += stream.flush()
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    if not ends:
        assert shown == text
        return
    read = text[: min(ends)]
    assert shown == read[: min(read.index(stop) for stop in stops if stop in read)]


@given(st.lists(st.sampled_from(["é", "\N{REPLACEMENT CHARACTER}", "a"]), max_size=60))
def test_what_waits_for_the_rest_of_a_character_stays_short(letters: list[str]) -> None:
    sizes: list[int] = []

    def watched(tokens: list[int]) -> str:
        sizes.append(len(tokens))
        return decode(tokens)

    stream = TextStream(watched, [])
    for token in "".join(letters).encode() + b"\xff" * 50 + b"\xc3" * 50:
        stream.push(token)
    assert max(sizes, default=0) <= 16


def test_tokens_without_text_do_not_pile_up() -> None:
    sizes: list[int] = []

    def watched(tokens: list[int]) -> str:
        sizes.append(len(tokens))
        return decode([token for token in tokens if token < 256])

    stream = TextStream(watched, [])
    for token in [0xC3, *[256] * 100]:
        stream.push(token)
    assert max(sizes) <= 20


def test_the_length_counts_what_is_held_back_and_ends_before_a_stop_string() -> None:
    stream = TextStream(decode, ["stop"])
    for token in b"a st":
        stream.push(token)
    assert (stream.length, stream.shown) == (4, 2)
    for token in b"op":
        stream.push(token)
    assert stream.stopped
    assert (stream.length, stream.shown) == (2, 2)


def test_the_bytes_of_tokens(tiny_model: Path) -> None:
    token_bytes = load_text(tiny_model).token_bytes
    assert sorted(token_bytes(token) for token in range(256)) == [bytes([byte]) for byte in range(256)]
    assert token_bytes(256) == b"<|end|>"
    assert token_bytes(299) == b"", "the model has more scores than there are tokens"


def test_the_bytes_of_sentence_piece_tokens() -> None:
    vocabulary = {"\N{LOWER ONE EIGHTH BLOCK}Hi": 0, "<0xE2>": 1, "<unk>": 2}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()])
    token_bytes = TokenBytes(tokenizer)
    assert [token_bytes(token) for token in range(3)] == [b" Hi", b"\xe2", b"<unk>"]


@pytest.mark.parametrize(("file", "expected"), [('{"eos_token_id": 5}', (5,)), ('{"eos_token_id": [5, 6]}', (5, 6))])
def test_end_tokens(file: str, expected: tuple[int, ...], make_model: Callable[..., Path], tmp_path: Path) -> None:
    (make_model(tmp_path) / "generation_config.json").write_text(file)
    assert load_text(tmp_path).end_tokens == expected
