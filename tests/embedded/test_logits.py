"""The engine's scores against those of transformers, on tiny random checkpoints of many shapes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from firstlight.embedded.demo.demo_model import ensure_demo_model
from firstlight.embedded.model.checkpoint import open_checkpoint
from firstlight.embedded.model.config import read_config
from firstlight.embedded.model.decoder import Model
from firstlight.embedded.model.weights import load
from firstlight.embedded.worker.kv_cache import KvCache

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SHAPES: dict[str, dict[str, Any]] = {
    "grouped, tied": {},
    "grouped, untied": {"tie_word_embeddings": False},
    "one key-value head": {"num_key_value_heads": 1},
    "as many key-value heads": {"num_key_value_heads": 4},
    "key-value heads left out": {"num_key_value_heads": None},
    "nine heads by three": {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3},
    "head size of its own": {"head_dim": 24},
    "other base of rotation": {"rope_theta": 500000.0},
    "llama3 rotation, older words": {"rope_scaling": LLAMA3},
    "llama3 rotation, newer words": {"rope_parameters": LLAMA3 | {"rope_theta": 5000.0}},
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads that wait for each other on busy cores take many times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def loaded(folder: Path, dtype: torch.dtype) -> tuple[Model, KvCache]:
    config = read_config(folder)
    model = Model(config, dtype, 1024)
    load(model, open_checkpoint(folder, config), lambda done, total, unit: None)
    return model, KvCache(config, 1, 1024, dtype)


def our_logits(model: Model, cache: KvCache, tokens: list[int], pieces: list[int]) -> torch.Tensor:
    """Scores after every token, the tokens run through in pieces of the given sizes."""
    slot = cache.take()
    hidden, start = [], 0
    for size in pieces:
        hidden.append(model.forward(torch.tensor(tokens[start : start + size]), slot, start, lambda: None))
        start += size
    cache.give_back(slot)
    return model.logits(torch.cat(hidden))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@torch.inference_mode()
def test_scores_agree_for_every_shape(shape: dict[str, Any], make_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_model(tmp_path, **shape)
    tokens = torch.randint(0, 300, (150,), generator=torch.Generator().manual_seed(1)).tolist()
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    expected = reference(torch.tensor([tokens])).logits[0]
    model, cache = loaded(folder, torch.float32)
    for pieces in ([150], [100, 1, 1, 1, 47]):
        torch.testing.assert_close(our_logits(model, cache, tokens, pieces), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.inference_mode()
def test_scores_agree_in_half_precision(dtype: torch.dtype, tiny_model: Path) -> None:
    tokens = list(range(1, 80))
    expected = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=dtype)(torch.tensor([tokens])).logits[0]
    model, cache = loaded(tiny_model, dtype)
    close = {torch.bfloat16: 0.15, torch.float16: 0.02}[dtype]
    torch.testing.assert_close(our_logits(model, cache, tokens, [79]), expected, rtol=close, atol=close)


@torch.inference_mode()
def test_greedy_text_of_a_real_model_is_the_same_token_for_token() -> None:
    """The reference reads our text in one pass; at every place its own choice must be the token that we chose."""
    folder = ensure_demo_model()
    model, cache = loaded(folder, torch.float32)
    slot, tokens, cached = cache.take(), [504, 3575, 282, 4649, 314], 0
    prompt = len(tokens)
    for _ in range(24):
        hidden = model.forward(torch.tensor(tokens[cached:]), slot, cached, lambda: None)
        cached = len(tokens)
        tokens.append(int(model.logits(hidden[-1:])[0].argmax()))
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    chosen = reference(torch.tensor([tokens])).logits[0].argmax(-1).tolist()
    assert tokens[prompt:] == chosen[prompt - 1 : -1]
