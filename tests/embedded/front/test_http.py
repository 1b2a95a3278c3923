"""The HTTP surface on a real server with a tiny model: two requests at once, two may wait."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from tokenizers import pre_tokenizers

WHO = ("front", "worker rank=0")
KEY = "not-for-the-log"
LONG = {"prompt": "Once", "max_tokens": 30000, "temperature": 0}


@pytest.fixture(scope="module")
def server(tiny_model: Path, server_class: Any) -> Iterator[Any]:
    running = server_class(
        *("--port", "0", "--threads", "1", "--max-num-seqs", "2", "--max-queue", "2"),
        *("--served-model-name", "tiny", "--max-model-len", "32768", tiny_model),
        key=KEY,
    ).ready()
    yield running
    assert running.end() == 0


@pytest.fixture
def idle(server: Any) -> Any:
    """The server, once what earlier tests left has been cancelled."""
    server.until(lambda health: health["in_flight"] == 0, "nothing in flight")
    return server


def events(body: bytes) -> list[Any]:
    """The documents of a stream, which must end with [DONE]."""
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_health_when_ready(idle: Any) -> None:
    reply = idle.ask("/health")
    assert reply.status == 200
    assert reply.json["status"] == "ready"
    assert reply.json["in_flight"] == 0
    (rank,) = reply.json["ranks"]
    assert rank["pid"] == idle.worker_pid
    assert rank["phase"] == "serving"


def test_process_names_tell_who_is_who(server: Any) -> None:
    title = Path(f"/proc/{server.worker_pid}/cmdline").read_bytes().split(b"\0")
    assert title[1:5] == [b"-m", b"firstlight.embedded.worker", b"--rank", b"0"]
    assert Path(f"/proc/{server.worker_pid}/comm").read_text() == "fl-worker-0\n"
    assert Path(f"/proc/{server.process.pid}/comm").read_text() == "fl-front\n"


def test_the_log_tells_every_phase_in_order(server: Any, tiny_model: Path) -> None:
    said = {who: [line.partition("] ")[2] for line in server.log if f"[firstlight {who}" in line] for who in WHO}
    begun = {who: [line for line in said[who] if line.endswith(" begin")] for who in said}
    steps = ["config", "import", "model_init", "weights", "kv_cache", "warmup", "serving"]
    assert begun["worker rank=0"] == [f"phase={name} begin" for name in steps]
    assert begun["front"] == ["phase=http_bind begin", "phase=config begin"]
    size = sum(tensor.size for tensor in load_file(tiny_model / "model.safetensors").values()) * 4
    assert f"progress phase=weights done={size} total={size} unit=bytes" in said["worker rank=0"]
    assert said["front"][0].startswith("start version=")
    assert f"listening host=127.0.0.1 port={server.port}" in said["front"]
    assert KEY not in "".join(server.log)


def test_a_key_is_asked_for(server: Any) -> None:
    assert server.ask("/health", headers={}).status == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        for reply in (server.ask("/v1/models", headers=headers), server.ask("/v1/completions", {}, headers=headers)):
            assert reply.status == 401
            assert reply.error["code"] == "invalid_api_key"


def test_the_front_does_without_torch(server: Any) -> None:
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "libtorch" not in maps
    assert "libtorch" in Path(f"/proc/{server.worker_pid}/maps").read_text()


def test_models(server: Any) -> None:
    (model,) = server.ask("/v1/models").json["data"]
    assert model["id"] == "tiny"
    assert model["max_model_len"] == 32768


def test_a_completion_counts_its_tokens(server: Any) -> None:
    reply = server.ask("/v1/completions", {"model": "tiny", "prompt": "Hello", "max_tokens": 7, "temperature": 0})
    assert reply.status == 200
    (choice,) = reply.json["choices"]
    assert choice["text"]
    assert choice["finish_reason"] == "length"
    assert reply.json["usage"] == {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}


def test_text_and_token_prompts_are_one(server: Any) -> None:
    common = {"max_tokens": 6, "temperature": 0}
    as_text = server.ask("/v1/completions", common | {"prompt": "aa"}).json
    token = sorted(pre_tokenizers.ByteLevel.alphabet()).index("a")
    for prompt in ([token, token], ["aa"]):
        assert server.ask("/v1/completions", common | {"prompt": prompt}).json["choices"] == as_text["choices"]


def test_streamed_pieces_make_the_whole(server: Any) -> None:
    body = {"prompt": "Hello", "max_tokens": 40, "temperature": 0}
    whole = server.ask("/v1/completions", body).json
    options = {"stream": True, "stream_options": {"include_usage": True}}
    documents = events(server.ask("/v1/completions", body | options).body)
    assert documents[-1]["usage"] == whole["usage"]
    assert documents[-1]["choices"] == []
    text = "".join(document["choices"][0]["text"] for document in documents[:-1])
    assert text == whole["choices"][0]["text"]
    assert [document["choices"][0]["finish_reason"] for document in documents[:-1]][-1] == "length"


def test_chat_streamed_and_whole(server: Any) -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    body = {"messages": [{"role": "user", "content": parts}], "max_completion_tokens": 20, "temperature": 0}
    whole = server.ask("/v1/chat/completions", body).json
    assert whole["object"] == "chat.completion"
    assert whole["usage"]["prompt_tokens"] == 7, "two special tokens and five letters"
    documents = events(server.ask("/v1/chat/completions", body | {"stream": True}).body)
    deltas = [document["choices"][0]["delta"] for document in documents]
    assert deltas[0]["role"] == "assistant"
    content = "".join(delta.get("content", "") for delta in deltas)
    assert content == whole["choices"][0]["message"]["content"]
    assert documents[-1]["choices"][0]["finish_reason"] == "length"


def test_a_seed_repeats_and_seeds_differ(server: Any) -> None:
    def text(seed: int) -> str:
        body = {"prompt": "Hello", "max_tokens": 30, "temperature": 1.5, "top_p": 0.95, "top_k": 100, "seed": seed}
        return str(server.ask("/v1/completions", body).json["choices"][0]["text"])

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_a_stop_string_ends_the_text_before_it(server: Any) -> None:
    body = {"prompt": "Hello", "max_tokens": 200, "temperature": 0.8, "seed": 3}
    text = server.ask("/v1/completions", body).json["choices"][0]["text"]
    stop = text[20:23]
    stopped = server.ask("/v1/completions", body | {"stop": [stop]}).json
    assert stopped["choices"][0]["text"] == text[: text.index(stop)]
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["usage"]["completion_tokens"] < 200


def test_many_at_once_answer_as_one_alone(idle: Any) -> None:
    bodies = [{"prompt": letter * 9, "max_tokens": 50, "temperature": 0} for letter in "abcd"]
    alone = [idle.ask("/v1/completions", body).json["choices"] for body in bodies]
    with ThreadPoolExecutor(len(bodies)) as pool:
        together = pool.map(lambda body: idle.ask("/v1/completions", body).json["choices"], bodies)
    assert list(together) == alone


def test_a_full_queue_is_said_and_a_client_that_goes_away_frees_its_place(idle: Any) -> None:
    running = [idle.stream("/v1/completions", LONG) for _ in range(2)]
    waiting = [idle.connect() for _ in range(2)]
    for connection in waiting:
        connection.request("POST", "/v1/completions", json.dumps(LONG), {"Authorization": f"Bearer {KEY}"})
    idle.until(lambda health: health["waiting"] == 2, "two requests wait")
    metrics = idle.ask("/metrics").body.decode()
    assert "firstlight:num_requests_running 2\n" in metrics
    assert "firstlight:num_requests_waiting 2\n" in metrics
    refused = idle.ask("/v1/completions", LONG)
    assert refused.status == 429
    assert refused.headers["retry-after"] == "1"
    assert refused.error["code"] == "queue_full"
    for connection in [*waiting, *(connection for connection, _ in running)]:
        connection.sock.shutdown(2)
        connection.close()
    idle.until(lambda health: health["in_flight"] == 0, "nothing in flight")
    assert idle.ask("/v1/completions", {"prompt": "a", "max_tokens": 1}).status == 200


BAD_BODIES: dict[str, tuple[bytes, str | None]] = {
    "not JSON": (b"{", None),
    "invalid UTF-8": (b'{"prompt": "\xff"}', None),
    "not an object": (b"[]", None),
    "deeply nested": (b"[" * 100_000, None),
    "no prompt": (b"{}", "prompt"),
    "empty prompt": (b'{"prompt": ""}', "prompt"),
    "wrong type": (b'{"prompt": 5}', "prompt"),
    "mixed prompt": (b'{"prompt": ["a", 1]}', "prompt"),
    "token out of range": (b'{"prompt": [100000]}', "prompt"),
    "negative token": (b'{"prompt": [-1]}', "prompt"),
    "huge token": (b'{"prompt": [123456789012345678901234567890]}', "prompt"),
    "negative temperature": (b'{"prompt": "a", "temperature": -1}', "temperature"),
    "infinite temperature": (b'{"prompt": "a", "temperature": 1e999}', "temperature"),
    "top_p of nothing": (b'{"prompt": "a", "top_p": 0}', "top_p"),
    "no tokens": (b'{"prompt": "a", "max_tokens": 0}', "max_tokens"),
    "too many tokens": (b'{"prompt": "a", "max_tokens": 99999}', "max_tokens"),
    "seed beyond 64 bits": (b'{"prompt": "a", "seed": 99999999999999999999}', "seed"),
    "empty stop": (b'{"prompt": "a", "stop": ""}', "stop"),
    "unknown field": (b'{"prompt": "a", "wish": 1}', "wish"),
    "field not implemented": (b'{"prompt": "a", "n": 2}', "n"),
}


@pytest.mark.parametrize(("raw", "param"), BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_a_bad_body_is_refused_with_its_field(server: Any, raw: bytes, param: str | None) -> None:
    reply = server.ask("/v1/completions", raw=raw)
    assert reply.status == 400
    assert reply.error["type"] == "invalid_request_error"
    assert reply.error["param"] == param


def test_fields_that_ask_for_nothing_are_taken(server: Any) -> None:
    neutral = {"n": 1, "user": "me", "presence_penalty": 0.0, "logprobs": None, "stop": None, "logit_bias": {}}
    assert server.ask("/v1/completions", {"prompt": "a", "max_tokens": 1} | neutral).status == 200


def test_a_prompt_longer_than_the_context(server: Any) -> None:
    reply = server.ask("/v1/completions", {"prompt": "a" * 32768, "max_tokens": 1})
    assert reply.status == 400
    assert reply.error["code"] == "context_length_exceeded"


def test_a_body_that_is_too_large(server: Any) -> None:
    reply = server.ask("/v1/completions", raw=b" " * ((8 << 20) + 1))
    assert reply.status == 413
    assert reply.error["code"] == "body_too_large"


def test_a_model_that_is_not_served(server: Any) -> None:
    reply = server.ask("/v1/completions", {"model": "gpt", "prompt": "a"})
    assert reply.status == 404
    assert reply.error["code"] == "model_not_found"
    assert "tiny" in reply.error["message"]


def test_paths_and_methods_that_do_not_exist(server: Any) -> None:
    for reply, status in ((server.ask("/v2"), 404), (server.ask("/v1/completions"), 405)):
        assert reply.status == status
        assert reply.error["type"] == "invalid_request_error"
    assert "there is no /v2 here; there are /v1/models, /v1/completions" in server.ask("/v2").error["message"]
    assert server.ask("/v1/completions").error["message"] == "/v1/completions does not take GET"


def test_metrics_count_tokens(idle: Any) -> None:
    def counted() -> tuple[float, float]:
        rows = dict(line.rsplit(" ", 1) for line in idle.ask("/metrics").body.decode().splitlines())
        return float(rows["firstlight:prompt_tokens_total"]), float(rows["firstlight:generation_tokens_total"])

    before = counted()
    idle.ask("/v1/completions", {"prompt": "abc", "max_tokens": 4})
    assert counted() == (before[0] + 3, before[1] + 4)


def test_a_long_prompt_in_pieces(server: Any) -> None:
    reply = server.ask("/v1/completions", {"prompt": "ab" * 700, "max_tokens": 2})
    assert reply.json["usage"]["prompt_tokens"] == 1400
