"""Targets and drafters for speculation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.embedded.drafters import write_drafter

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def make_drafter() -> Callable[..., Path]:
    return write_drafter


@pytest.fixture(scope="session")
def small_target() -> dict[str, Any]:
    """config.json of a target with eight layers, so that the default states are three."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 300,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "torch_dtype": "float32",
    }
