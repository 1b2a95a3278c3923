"""OpenAI's own Python client against a real server with a tiny model."""

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

KEY = "a-key-of-its-own"


@pytest.fixture(scope="module")
def server(tiny_model: Path, server_class: Any) -> Iterator[Any]:
    running = server_class(
        *("--port", "0", "--threads", "1", "--max-num-seqs", "2", "--max-queue", "1"),
        *("--served-model-name", "tiny", tiny_model),
        key=KEY,
    ).ready()
    yield running
    assert running.end() == 0


@pytest.fixture
def client(server: Any) -> Iterator[openai.OpenAI]:
    server.until(lambda health: health["in_flight"] == 0, "nothing in flight")
    with _client(server) as made:
        yield made


def _client(server: Any, key: str = KEY) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=key, max_retries=0, timeout=60)


HELLO: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "firstlight"


def test_a_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=HELLO, max_completion_tokens=12, temperature=0)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12


def test_a_chat_goes_on_with_the_answer_of_the_first(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=5, seed=1)
    more: list[Any] = [*HELLO, first.choices[0].message, {"role": "user", "content": "More"}]
    assert client.chat.completions.create(model="tiny", messages=more, max_tokens=5).choices


def test_a_streamed_chat_is_the_whole_one(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": HELLO, "max_tokens": 30, "temperature": 0}
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_client_s_own_stream_helper(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": HELLO, "max_tokens": 20, "temperature": 0}
    text = client.chat.completions.create(**asked).choices[0].message.content or ""
    with client.chat.completions.stream(**asked, stop=text[8:10], logprobs=True) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"content.delta", "logprobs.content.delta"} <= kinds
    assert final.choices[0].message.content == text[: text.index(text[8:10])]
    assert final.choices[0].finish_reason == "stop"


def test_a_completion_streamed_and_whole(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "prompt": "Hello", "max_tokens": 20, "temperature": 0}
    whole = client.completions.create(**asked)
    pieces = [chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True)]
    assert "".join(pieces) == whole.choices[0].text


def test_the_scores_of_a_completion(client: openai.OpenAI) -> None:
    choice = client.completions.create(model="tiny", prompt="Hello", max_tokens=8, temperature=0, logprobs=3).choices[
        0
    ]
    scores = choice.logprobs
    assert scores is not None
    assert scores.tokens is not None
    assert scores.token_logprobs is not None
    assert scores.top_logprobs is not None
    assert len(scores.tokens) == len(scores.token_logprobs) == len(scores.top_logprobs) == 8
    for token, logprob, top in zip(scores.tokens, scores.token_logprobs, scores.top_logprobs, strict=True):
        assert logprob == max(top.values()) == top[token], "greedy takes the likeliest"
        assert 3 <= len(top) <= 4
        assert sum(map(math.exp, top.values())) <= 1.0001


def test_the_scores_of_a_chat(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": HELLO, "max_tokens": 8, "seed": 5, "temperature": 2}
    choice = client.chat.completions.create(**asked, logprobs=True, top_logprobs=4).choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert len(choice.logprobs.content) == 8
    text = b"".join(bytes(score.bytes or []) for score in choice.logprobs.content)
    assert text.decode("utf-8", "replace") == choice.message.content
    for score in choice.logprobs.content:
        logprobs = [other.logprob for other in score.top_logprobs]
        assert len(logprobs) == 4
        assert logprobs == sorted(logprobs, reverse=True)


def test_penalties_seed_and_our_own_fields(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "prompt": "aaaa", "max_tokens": 30, "seed": 3}

    def text(**fields: Any) -> str:
        return str(client.completions.create(**asked, **fields).choices[0].text)

    assert text(presence_penalty=1.5, frequency_penalty=1.5) == text(presence_penalty=1.5, frequency_penalty=1.5)
    assert text(extra_body={"min_p": 1.0}) == text(temperature=0), "only the likeliest is as likely as itself"
    assert text(extra_body={"top_k": 1, "ignore_eos": True}) == text(temperature=0, extra_body={"ignore_eos": True})


def test_a_stop_string(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "prompt": "Hello", "max_tokens": 60, "temperature": 0.9, "seed": 4}
    text = client.completions.create(**asked).choices[0].text
    stop = text[10:12]
    stopped = client.completions.create(**asked, stop=stop).choices[0]
    assert stopped.text == text[: text.index(stop)]
    assert stopped.finish_reason == "stop"


def test_errors_are_the_client_s_own(server: Any, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model="tiny", prompt="x", temperature=-1)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as unknown:
        client.completions.create(model="tiny", prompt="x", extra_body={"wish": 1})
    assert unknown.value.param == "wish"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt", prompt="x")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt")
    with _client(server, "wrong") as stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_a_full_server_is_a_rate_limit(client: openai.OpenAI) -> None:
    streams = [
        client.completions.create(model="tiny", prompt="x", max_tokens=8000, temperature=0, stream=True)
        for _ in range(3)
    ]
    with pytest.raises(openai.RateLimitError) as full:
        client.completions.create(model="tiny", prompt="x")
    assert full.value.response.headers["retry-after"] == "1"
    for stream in streams:
        stream.close()


def test_a_stream_that_is_closed_is_cancelled(server: Any, client: openai.OpenAI) -> None:
    stream = client.completions.create(model="tiny", prompt="x", max_tokens=8000, temperature=0, stream=True)
    next(iter(stream))
    stream.close()
    server.until(lambda health: health["in_flight"] == 0, "nothing in flight")


def test_a_task_that_is_cancelled_is_cancelled(server: Any, client: openai.OpenAI) -> None:
    del client  # its part is that nothing is in flight

    async def asking() -> None:
        url = f"http://127.0.0.1:{server.port}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as made:
            async with asyncio.timeout(0.5):
                await made.completions.create(model="tiny", prompt="x", max_tokens=8000, temperature=0)

    with pytest.raises(TimeoutError):
        asyncio.run(asking())
    server.until(lambda health: health["in_flight"] == 0, "nothing in flight")
