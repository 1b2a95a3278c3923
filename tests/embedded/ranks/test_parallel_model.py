"""A model shared by ranks computes what it computes alone: tokens, probabilities and tapped states."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.embedded.drafters import write_drafter

Start = Callable[..., Any]
PROMPTS = ["Once upon a time", "long " * 80, "abc abc abc abc abc abc"]
"""A few rows, several chunks, and something that repeats itself."""
SHARED = {
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "hidden_size": 96,
    "intermediate_size": 192,
    "head_dim": 32,
}
QUANTISED: dict[str, dict[str, Any]] = {
    "compressed-tensors": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32},
            }
        },
        "ignore": ["lm_head"],
    },
    "gguf-blocks": {"quant_method": "gguf-blocks", "linear": "Q4_1", "embedding": "Q8_0", "group_size": 32},
}


def answers(start_ranks: Start, model: Path, ranks: int, *more: str) -> list[dict[str, Any]]:
    prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
    running = start_ranks("--deadline", 30, "--model", model, "--ranks", ranks, *prompts, *more)
    found: list[dict[str, Any]] = running.fact("answered")["answers"]
    assert running.all_end() == dict.fromkeys(range(ranks), 0)
    return found


def alike(alone: list[dict[str, Any]], shared: list[dict[str, Any]]) -> None:
    for one, other in zip(alone, shared, strict=True):
        assert one["tokens"] == other["tokens"]
        np.testing.assert_allclose(one["logprobs"], other["logprobs"], atol=1e-3)
        assert one["states"].keys() == other["states"].keys() == {"1", "2"}
        for number, state in one["states"].items():
            np.testing.assert_allclose(state, other["states"][number], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kernels", ["", "off"])
def test_three_ranks_are_as_one(start_ranks: Start, parallel_model: Path, kernels: str) -> None:
    alone, shared = (answers(start_ranks, parallel_model, ranks, "--kernels", kernels) for ranks in (1, 3))
    alike(alone, shared)


@pytest.mark.parametrize("drafter", ["ngram", "eagle"])
def test_three_ranks_speculate_as_one_does_not(
    start_ranks: Start, parallel_model: Path, drafter: str, tmp_path: Path
) -> None:
    if drafter == "eagle":
        target = json.loads((parallel_model / "config.json").read_text())
        drafter = str(write_drafter(tmp_path, target, states=(0, 1, 2)))
    alone = answers(start_ranks, parallel_model, 1)
    shared = answers(start_ranks, parallel_model, 3, "--drafter", drafter)
    assert [answer["tokens"] for answer in alone] == [answer["tokens"] for answer in shared]


def test_three_ranks_give_the_same_bits_again(start_ranks: Start, parallel_model: Path) -> None:
    once, again = (answers(start_ranks, parallel_model, 3) for _ in range(2))
    assert once == again


@pytest.mark.parametrize("form", QUANTISED)
def test_three_ranks_share_quantised_weights(
    start_ranks: Start, make_model: Callable[..., Path], tmp_path: Path, form: str
) -> None:
    model = make_model(tmp_path, quantization_config=QUANTISED[form], **SHARED)
    alone, shared = (answers(start_ranks, model, ranks) for ranks in (1, 3))
    alike(alone, shared)


def test_heads_that_cannot_be_shared_are_an_error(start_ranks: Start, tiny_model: Path) -> None:
    running = start_ranks("--deadline", 30, "--model", tiny_model, "--ranks", 3, "--prompt", "x")
    assert set(running.all_end().values()) == {1}
    (message,) = running.said
    assert "3" in message
    assert "heads" in message


def test_a_server_of_three_ranks_answers_as_one_of_one(start: Start, parallel_model: Path) -> None:
    servers = [start("--tp", ranks, "--threads", "1", parallel_model) for ranks in ("1", "3")]
    ask = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "logprobs": 1}
    one, three = (server.ready().ask("/v1/completions", ask).json["choices"][0] for server in servers)
    assert one["text"] == three["text"]
    assert one["logprobs"]["tokens"] == three["logprobs"]["tokens"]
    ranks = servers[1].ask("/health").json["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1, 2]
    assert len({rank["pid"] for rank in ranks}) == 3
    assert all(rank["phase"] == "serving" and rank["steps"] > 0 for rank in ranks)
