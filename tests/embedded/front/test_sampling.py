"""What a request asks for reaches the worker, and what the worker tells reaches the client in OpenAI's shapes."""

import json
from collections.abc import Callable
from typing import Any

import pytest

Events = Callable[[bytes], list[Any]]
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


def said(server: Any, prompt: str, **fields: Any) -> Any:
    reply = server.ask(COMPLETIONS, {"prompt": prompt, "max_tokens": 4000} | fields)
    assert reply.status == 200, reply.body
    return reply.json


def asked(server: Any, **fields: Any) -> Any:
    """The request as the worker got it."""
    return json.loads(said(server, "asked", **fields)["choices"][0]["text"])


def test_every_sampling_field_reaches_the_worker(scripted: Any) -> None:
    fields = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "seed": 11,
        "presence_penalty": -1.5,
        "frequency_penalty": 2,
    }
    request = asked(scripted, **fields)
    assert request["sampling"] == fields | {"logprobs": None}
    assert request["stop_tokens"] == []
    assert request["max_tokens"] == 4000


def test_what_is_left_out_is_neutral(scripted: Any) -> None:
    neutral = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": None, "logprobs": None}
    for fields in ({}, {"top_k": -1, "temperature": None}):
        assert asked(scripted, **fields)["sampling"] == neutral | {"presence_penalty": 0.0, "frequency_penalty": 0.0}


def test_end_tokens_may_be_added_and_ignored(start_scripted: Any, tiny_model: Any) -> None:
    (tiny_model / "generation_config.json").write_text('{"eos_token_id": 256}')
    try:
        server = start_scripted().ready()
    finally:
        (tiny_model / "generation_config.json").unlink()
    assert asked(server, stop_token_ids=[5])["stop_tokens"] == [256, 5]
    assert asked(server, ignore_eos=True)["stop_tokens"] == []
    assert asked(server, ignore_eos=True, stop_token_ids=[5])["stop_tokens"] == [5]


def test_answers_have_a_limit_of_the_server(start_scripted: Any) -> None:
    server = start_scripted("--max-output-tokens", "9").ready()
    assert server.ask(CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 10}).error["param"] == (
        "max_tokens"
    )
    reply = server.ask(COMPLETIONS, {"prompt": "echo 0123456789abcdef"}).json
    assert reply["usage"]["completion_tokens"] == 9


def test_scores_of_a_completion(scripted: Any) -> None:
    choice = said(scripted, "echo abc", logprobs=2)["choices"][0]
    scores = choice["logprobs"]
    assert scores["tokens"] == ["a", "b", "c"]
    assert scores["token_logprobs"] == [-0.125, -0.25, -0.375]
    assert scores["top_logprobs"][0] == {"a": -0.125, "b": -0.25}
    assert scores["text_offset"] == [0, 1, 2]


def test_scores_without_alternatives_tell_the_token_itself(scripted: Any) -> None:
    assert said(scripted, "echo ab", logprobs=0)["choices"][0]["logprobs"]["top_logprobs"] == [
        {"a": -0.125},
        {"b": -0.25},
    ]


def test_tokens_that_are_no_whole_characters_are_told_apart(scripted: Any) -> None:
    choice = said(scripted, "echo é!", logprobs=1)["choices"][0]
    assert choice["text"] == "é!"
    assert choice["logprobs"]["tokens"] == ["bytes:\\xc3", "bytes:\\xa9", "!"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 1]


def test_scores_of_a_streamed_completion_are_those_of_the_whole(scripted: Any, events: Events) -> None:
    body = {"prompt": "draft 3 some wörds and more", "max_tokens": 400, "logprobs": 2, "stop": ["mor"]}
    whole = scripted.ask(COMPLETIONS, body).json["choices"][0]
    assert whole["text"] == "some wörds and "
    assert whole["finish_reason"] == "stop"
    assert "".join(whole["logprobs"]["tokens"]).endswith("ds and ")
    pieces = [document["choices"][0] for document in events(scripted.ask(COMPLETIONS, body | {"stream": True}).body)]
    told = [piece["logprobs"] for piece in pieces if piece["logprobs"]]
    assert len(told) > 3
    for name, values in whole["logprobs"].items():
        assert [value for scores in told for value in scores[name]] == values
    assert "".join(piece["text"] for piece in pieces) == whole["text"]


def chat(server: Any, content: str, **fields: Any) -> Any:
    """The tiny model's template writes special tokens, which the script's worker does not see as text."""
    return server.ask(CHAT, {"messages": [{"role": "user", "content": content}], "max_tokens": 400} | fields)


def test_scores_of_a_chat(scripted: Any, events: Events) -> None:
    fields = {"logprobs": True, "top_logprobs": 2}
    choice = chat(scripted, "echo é", **fields).json["choices"][0]
    assert choice["message"]["content"] == "é"
    first, second = choice["logprobs"]["content"]
    assert first["logprob"] == -0.125
    assert first["bytes"] == [0xC3]
    assert first["top_logprobs"][0] == {"token": first["token"], "logprob": -0.125, "bytes": [0xC3]}
    assert len(first["top_logprobs"]) == 2
    assert second["bytes"] == [0xA9]
    streamed = events(chat(scripted, "echo é", stream=True, **fields).body)
    told = [document["choices"][0]["logprobs"] for document in streamed]
    assert [score for scores in told if scores for score in scores["content"]] == [first, second]


def test_scores_without_alternatives_in_a_chat(scripted: Any) -> None:
    content = chat(scripted, "echo a", logprobs=True).json["choices"][0]["logprobs"]["content"]
    assert content == [{"token": "a", "logprob": -0.125, "bytes": [97], "top_logprobs": []}]


BAD_FIELDS: dict[str, tuple[str, str, str]] = {
    "min_p above one": (COMPLETIONS, '"min_p": 1.5', "min_p"),
    "min_p below nothing": (COMPLETIONS, '"min_p": -0.1', "min_p"),
    "a huge penalty": (COMPLETIONS, '"presence_penalty": 3', "presence_penalty"),
    "a penalty that is no number": (COMPLETIONS, '"frequency_penalty": NaN', "frequency_penalty"),
    "an infinite penalty": (CHAT, '"frequency_penalty": -Infinity', "frequency_penalty"),
    "a number beyond all floats": (CHAT, '"min_p": 1e999', "min_p"),
    "temperature in words": (CHAT, '"temperature": "hot"', "temperature"),
    "temperature yes": (COMPLETIONS, '"temperature": true', "temperature"),
    "top_k in halves": (COMPLETIONS, '"top_k": 0.5', "top_k"),
    "top_k below minus one": (COMPLETIONS, '"top_k": -2', "top_k"),
    "too many alternatives": (COMPLETIONS, '"logprobs": 21', "logprobs"),
    "scores, yes or no": (COMPLETIONS, '"logprobs": true', "logprobs"),
    "a number of scores in a chat": (CHAT, '"logprobs": 5', "logprobs"),
    "alternatives without scores": (CHAT, '"top_logprobs": 2', "top_logprobs"),
    "negative alternatives": (CHAT, '"logprobs": true, "top_logprobs": -1', "top_logprobs"),
    "17 stops": (COMPLETIONS, '"stop": [' + ", ".join(['"x"'] * 17) + "]", "stop"),
    "stops of numbers": (COMPLETIONS, '"stop": [1]', "stop[0]"),
    "an end token that is none": (COMPLETIONS, '"stop_token_ids": [-1]', "stop_token_ids[0]"),
    "an endless end token": (COMPLETIONS, f'"stop_token_ids": [{1 << 70}]', "stop_token_ids[0]"),
    "ignore_eos in words": (COMPLETIONS, '"ignore_eos": "yes"', "ignore_eos"),
    "usage without a stream": (COMPLETIONS, '"stream_options": {"include_usage": true}', "stream_options"),
    "two answers": (CHAT, '"n": 2', "n"),
    "an answer, yes": (CHAT, '"n": true', "n"),
    "a bias": (COMPLETIONS, '"logit_bias": {"5": 1}', "logit_bias"),
    "an echo": (COMPLETIONS, '"echo": true', "echo"),
    "tools": (CHAT, '"tools": [{"type": "function"}]', "tools"),
    "JSON": (CHAT, '"response_format": {"type": "json_object"}', "response_format"),
    "a negative length": (CHAT, '"max_completion_tokens": -1', "max_completion_tokens"),
    "a huge length": (CHAT, '"max_tokens": 123456789012345678901234567890', "max_tokens"),
    "deep nesting": (COMPLETIONS, '"stop": ' + "[" * 500 + "]" * 500, "stop[0]"),
}


@pytest.mark.parametrize(("path", "field", "param"), BAD_FIELDS.values(), ids=BAD_FIELDS.keys())
def test_a_bad_field_is_refused_by_its_name(scripted: Any, path: str, field: str, param: str) -> None:
    given = '"prompt": "echo x"' if path == COMPLETIONS else '"messages": [{"role": "user", "content": "echo x"}]'
    reply = scripted.ask(path, raw=f"{{{given}, {field}}}".encode())
    assert reply.status == 400
    assert reply.error["param"] == param


BAD_MESSAGES: dict[str, tuple[Any, str]] = {
    "none": ([], "messages"),
    "no list": ("hello", "messages"),
    "an unknown role": ([{"role": "wizard", "content": "x"}], "messages[0].role"),
    "a tool's": ([{"role": "tool", "content": "x", "tool_call_id": "1"}], "messages[0].role"),
    "nothing said": ([{"role": "user", "content": None}], "messages[0].content"),
    "an image": ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
    "a call": ([{"role": "assistant", "content": "", "tool_calls": [{}]}], "messages[0].tool_calls"),
    "an unknown field": ([{"role": "user", "content": "x", "mood": "good"}], "messages[0]"),
}


@pytest.mark.parametrize(("messages", "param"), BAD_MESSAGES.values(), ids=BAD_MESSAGES.keys())
def test_a_bad_message_is_refused_by_its_place(scripted: Any, messages: Any, param: str) -> None:
    reply = scripted.ask(CHAT, {"messages": messages})
    assert reply.status == 400
    assert reply.error["param"] == param


def test_our_own_answer_may_be_sent_back(scripted: Any) -> None:
    message = chat(scripted, "echo a").json["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "a", "refusal": None}
    again = [message, {"role": "user", "content": "x", "name": "me"}]
    body = {"messages": [{"role": "user", "content": "echo "}, *again], "max_tokens": 9, "n": 1, "tools": []}
    assert scripted.ask(CHAT, body).status == 200
