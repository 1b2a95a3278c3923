"""What config.json says of each family, and the tensors we expect, against the classes of transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from firstlight.embedded.model.checkpoint import expected_tensors
from firstlight.embedded.model.config import read_config
from firstlight.embedded.model.rope import LinearScaling

LLAMA: dict[str, Any] = {}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
WINDOWS = {"use_sliding_window": True, "sliding_window": 40}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "llama, untied": {"tie_word_embeddings": False},
    "llama, heads of their own size": {"head_dim": 24},
    "llama, attention biases": {"attention_bias": True},
    "llama, mlp biases": {"mlp_bias": True},
    "mistral": MISTRAL,
    "mistral, without a window": MISTRAL | {"sliding_window": None},
    "mistral, window of its own": MISTRAL | {"sliding_window": 40},
    "qwen2": QWEN2,
    "qwen2, untied": QWEN2 | {"tie_word_embeddings": False},
    "qwen2, windows": QWEN2 | WINDOWS | {"max_window_layers": 1},
    "qwen2, windows that are not used": QWEN2 | {"sliding_window": 40, "max_window_layers": 0},
    "qwen2, windows layer by layer": QWEN2 | WINDOWS | {"layer_types": ["sliding_attention", "full_attention"]},
    "qwen3": QWEN3,
    "qwen3, heads of their own size": QWEN3 | {"head_dim": 32},
    "qwen3, biases": QWEN3 | {"attention_bias": True},
    "qwen3, windows": QWEN3 | WINDOWS | {"max_window_layers": 1},
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_tensors_are_those_of_transformers(
    shape: dict[str, Any], make_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_model(tmp_path, **shape)
    with torch.device("meta"):
        reference = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    stored = {name: tuple(tensor.shape) for name, tensor in reference.state_dict().items()}
    if reference.config.tie_word_embeddings:
        del stored["lm_head.weight"]
    assert {name: form.shape for name, form in expected_tensors(read_config(folder)).items()} == stored


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_windows_are_those_of_transformers(
    shape: dict[str, Any], make_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_model(tmp_path, **shape)
    with torch.device("meta"):
        reference = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    if reference.config.model_type == "mistral":
        windows = [reference.config.sliding_window or 0] * len(reference.model.layers)
    else:
        windows = [getattr(layer.self_attn, "sliding_window", 0) or 0 for layer in reference.model.layers]
    assert read_config(folder).windows == tuple(windows)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_what_transformers_writes_again_is_read_as_the_same(
    shape: dict[str, Any], make_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_model(tmp_path / "ours", eos_token_id=256, **shape)
    AutoConfig.from_pretrained(folder).save_pretrained(tmp_path / "theirs")
    assert read_config(tmp_path / "theirs") == read_config(folder)


@pytest.mark.parametrize("family", [LLAMA, MISTRAL, QWEN2, QWEN3], ids=["llama", "mistral", "qwen2", "qwen3"])
def test_keys_left_out_have_the_defaults_of_their_family(family: dict[str, Any], tmp_path: Path) -> None:
    said = {
        "hidden_size": 4096,
        "intermediate_size": 96,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 300,
    }
    architecture = family or {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps(said | architecture))
    ours, theirs = read_config(tmp_path), AutoConfig.from_pretrained(tmp_path)
    assert ours.kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 4096 // 32)
    assert ours.max_positions == theirs.max_position_embeddings
    assert ours.norm_eps == theirs.rms_norm_eps
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]
    assert ours.tied == theirs.tie_word_embeddings
    assert max(ours.windows) == (getattr(theirs, "sliding_window", None) or 0)


ROTATIONS: dict[str, dict[str, Any]] = {
    "older words": {"rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "newer words": {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0}},
}


@pytest.mark.parametrize("words", ROTATIONS.values(), ids=ROTATIONS.keys())
def test_a_rotation_is_read_in_older_and_newer_words(
    words: dict[str, Any], make_model: Callable[..., Path], tmp_path: Path
) -> None:
    config = read_config(make_model(tmp_path, **words))
    assert (config.rope_theta, config.rope_scaling) == (5000.0, LinearScaling(4.0))


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_dtype_is_read_in_older_and_newer_words(
    key: str, make_model: Callable[..., Path], tmp_path: Path
) -> None:
    assert read_config(make_model(tmp_path, **{"torch_dtype": None, key: "float16"})).dtype == "float16"
