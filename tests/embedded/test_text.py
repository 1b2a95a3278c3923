"""Text from tokens: streamed pieces, stop strings, chat templates."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.embedded.errors import RequestRefused
from firstlight.embedded.front.detokenize import TextStream
from firstlight.embedded.front.text import ChatTemplate, load_text

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


def test_a_template_runs_in_a_sandbox() -> None:
    template = ChatTemplate("{{ ''.__class__.__mro__[1].__subclasses__() }}", {})
    with pytest.raises(RequestRefused):
        template.render([{"role": "user", "content": "x"}])


def test_a_model_without_template_refuses_chat(make_model: Callable[..., Path], tmp_path: Path) -> None:
    (make_model(tmp_path) / "tokenizer_config.json").unlink()
    with pytest.raises(RequestRefused, match="has no chat template"):
        load_text(tmp_path).encode_chat([{"role": "user", "content": "x"}])


def test_the_template_file_goes_before_the_settings(make_model: Callable[..., Path], tmp_path: Path) -> None:
    (make_model(tmp_path) / "chat_template.jinja").write_text("<|user|>{{ eos_token }}")
    text = load_text(tmp_path)
    assert text.encode_chat([]) == [257, 256]


@pytest.mark.parametrize(("file", "expected"), [('{"eos_token_id": 5}', (5,)), ('{"eos_token_id": [5, 6]}', (5, 6))])
def test_end_tokens(file: str, expected: tuple[int, ...], make_model: Callable[..., Path], tmp_path: Path) -> None:
    (make_model(tmp_path) / "generation_config.json").write_text(file)
    assert load_text(tmp_path).end_tokens == expected
