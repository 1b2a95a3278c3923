"""The engine's scores and states against those of transformers, on tiny random checkpoints of every family."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.embedded.model.running import loaded, run
from transformers import AutoModelForCausalLM

from firstlight.embedded.demo.demo_model import ensure_demo_model
from firstlight.embedded.model.passes import PAGE, Pass, Span

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 24}
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
    "biases everywhere": {"attention_bias": True, "mlp_bias": True},
    "mistral, no window": MISTRAL | {"sliding_window": None},
    "mistral, window": MISTRAL | {"sliding_window": 40},
    "qwen2": QWEN2,
    "qwen2, window from its second layer on": QWEN2
    | {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1},
    "qwen3": QWEN3,
    "qwen3, untied": QWEN3 | {"tie_word_embeddings": False},
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@torch.no_grad()
def test_scores_and_states_agree_for_every_shape(
    shape: dict[str, Any], backend: str, make_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_model(tmp_path, **shape)
    tokens = torch.randint(0, 300, (150,), generator=torch.Generator().manual_seed(1)).tolist()
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    expected = reference(torch.tensor([tokens]), output_hidden_states=True)
    engine = loaded(folder)
    assert (engine.kernels is None) == (backend == "torch")
    layers = engine.config.layers
    for pieces in ([150], [100, 1, 1, 1, 20, 4, 23]):
        result = run(engine, tokens, pieces, tapped=(*range(layers), layers, layers + 1))
        torch.testing.assert_close(result.logits, expected.logits[0], rtol=1e-4, atol=1e-4)
        for state in range(layers):
            torch.testing.assert_close(result.states[state], expected.hidden_states[state][0], rtol=1e-4, atol=1e-4)
        after_norm = reference.model.norm(result.states[layers])
        torch.testing.assert_close(after_norm, expected.hidden_states[layers][0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(result.states[layers + 1], after_norm, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@torch.no_grad()
def test_scores_agree_in_half_precision(dtype: str, backend: str, tiny_model: Path) -> None:
    tokens = list(range(1, 80))
    expected = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=getattr(torch, dtype))(torch.tensor([tokens]))
    close = {"bfloat16": 0.15, "float16": 0.02}[dtype]
    for pieces in ([79], [20, 20, 4, 4, 31]):
        result = run(loaded(tiny_model, dtype), tokens, pieces)
        torch.testing.assert_close(result.logits, expected.logits[0].float(), rtol=close, atol=close)


@torch.no_grad()
def test_greedy_text_of_a_real_model_is_the_same_token_for_token(backend: str) -> None:
    """The reference reads our text in one pass; at every place its own choice must be the token that we chose."""
    folder = ensure_demo_model()
    engine = loaded(folder)
    tokens, cached = [504, 3575, 282, 4649, 314], 0
    prompt = len(tokens)
    for _ in range(24):
        work = Pass(
            number=0,
            kind="decode",
            tokens=tokens[cached:],
            spans=[Span(cached, len(tokens) - cached, [3, 1, 2])],
            wanted=[len(tokens) - cached - 1],
        )
        cached = len(tokens)
        tokens.append(int(engine.runner.run(work).logits[0].argmax()))
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    chosen = reference(torch.tensor([tokens])).logits[0].argmax(-1).tolist()
    assert tokens[prompt:] == chosen[prompt - 1 : -1]


@torch.no_grad()
def test_a_row_is_computed_alike_in_any_company(tiny_model: Path) -> None:
    """Bit by bit: alone, as one of several drafts, and beside other sequences."""
    engine = loaded(tiny_model, "bfloat16")
    assert engine.kernels is not None
    tokens = list(range(40, 90))
    alone = torch.cat([run(engine, tokens, [48, 1, 1]).logits[48:]])
    together = run(engine, tokens, [48, 2]).logits[48:]
    assert torch.equal(alone, together)
    pages = list(reversed(range(1, 2 + len(tokens) // PAGE)))
    other = Span(0, 3, [20])
    beside = engine.runner.run(
        Pass(
            number=9,
            kind="decode",
            tokens=[7, 8, 9, *tokens[48:]],
            spans=[other, Span(48, 2, pages)],
            wanted=[3, 4],
        )
    )
    assert torch.equal(beside.logits, alone)
