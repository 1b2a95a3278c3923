"""Many unlike requests at once, few pages, drafts, clients that go away: every answer is the one given alone."""

import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.embedded.drafters import write_drafter

Start = Callable[..., Any]
Request = dict[str, Any]
PLAIN = ("--dtype", "bfloat16", "--threads", "1")
CROWDED = (*PLAIN, "--max-model-len", "128", "--kv-tokens", "176", "--max-num-seqs", "6", "--speculate", "always")
LONGEST = 64
"""Longer prompts go through torch, whose last bits depend on how much of a prompt is known."""
LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 63, LONGEST)
CLIENTS = 8


def requests(dice: random.Random, count: int) -> list[Request]:
    """Prompts that begin alike, and every way to choose a token whose outcome is certain."""
    common = [dice.randrange(256) for _ in range(LONGEST)]
    made = []
    for _ in range(count):
        length = dice.choice(LENGTHS)
        shared = dice.choice([0, length // 2, length])
        prompt = common[:shared] + [dice.randrange(256) for _ in range(length - shared)]
        asked: Request = {"prompt": prompt, "max_tokens": dice.randint(1, 40), "ignore_eos": dice.random() < 0.5}
        asked |= dice.choice([{"temperature": 0}, {"temperature": 1.5, "seed": dice.randint(-9, 9)}])
        asked |= dice.choice([{}, {}, {"top_k": 1}, {"min_p": 1}, {"top_p": 0.5}])
        asked |= dice.choice(
            [{}, {}, {"presence_penalty": -2, "frequency_penalty": 1}, {"logprobs": 20}, {"stop": "e"}]
        )
        made.append(asked)
    return made


def answer(server: Any, asked: Request) -> tuple[str, str, int]:
    reply = server.ask("/v1/completions", asked)
    if reply.status != 200:
        return reply.body.decode(), "refused", 0
    choice = reply.json["choices"][0]
    return choice["text"], choice["finish_reason"], reply.json["usage"]["completion_tokens"]


def go_away(server: Any, asked: Request, after_s: float) -> None:
    connection = server.connect()
    connection.request("POST", "/v1/completions", json.dumps(asked | {"stream": True}))
    time.sleep(after_s)
    connection.close()


@pytest.mark.parametrize("kind", ["ngram", "eagle"])
def test_every_answer_is_the_one_given_alone(kind: str, start: Start, tiny_model: Path, tmp_path: Path) -> None:
    dice = random.Random(kind)
    asked = requests(dice, 32)
    alone = start(tiny_model, *PLAIN).ready()
    expected = [answer(alone, one) for one in asked]
    alone.end()
    assert all(finish in {"stop", "length"} for _, finish, _ in expected)
    target = json.loads((tiny_model / "config.json").read_text())
    drafter = kind if kind == "ngram" else write_drafter(tmp_path / "drafter", target, states=(1, 2))
    server = start(tiny_model, *CROWDED, "--drafter", drafter).ready()
    wrong: list[tuple[Request, object]] = []

    def client(seed: float) -> None:
        own = random.Random(seed)
        for index in own.sample(range(len(asked)), 12):
            if own.random() < 0.25:
                go_away(server, asked[index], own.random() * 0.1)
            elif (got := answer(server, asked[index])) != expected[index]:
                wrong.append((asked[index], got))

    clients = [threading.Thread(target=client, args=(dice.random(),), daemon=True) for _ in range(CLIENTS)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(60)
    assert not any(thread.is_alive() for thread in clients)
    assert not wrong
    server.until(lambda document: document["in_flight"] == 0, "nothing in flight")
    until = time.monotonic() + 10
    while b"\nfirstlight:kv_cache_pages_used 0\n" not in server.ask("/metrics").body:
        assert time.monotonic() < until, "pages are lost"
        time.sleep(0.1)
