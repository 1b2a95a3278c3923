"""The scores of quantised models against those of transformers on the numbers that their weights stand for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.embedded.model.running import loaded, run
from transformers import AutoModelForCausalLM

from firstlight.embedded.demo.demo_model import ensure_demo_model

SCHEMES: dict[str, tuple[int, bool | None]] = {
    "32, symmetric": (32, True),
    "32, zero points": (32, False),
    "128, symmetric": (128, True),
    "128, zero points": (128, False),
    "GGUF blocks": (32, None),
}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 128, "intermediate_size": 384},
    "qwen2, untied": QWEN2 | {"hidden_size": 128, "intermediate_size": 256, "tie_word_embeddings": False},
}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def shape(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


@pytest.fixture(params=SCHEMES.values(), ids=SCHEMES.keys())
def folders(
    request: pytest.FixtureRequest, shape: dict[str, Any], make_quantised: Callable[..., None], tmp_path: Path
) -> tuple[Path, Path]:
    """A quantised model, and the model of the numbers that it stands for."""
    make_quantised(tmp_path / "quantised", tmp_path / "plain", *request.param, **shape)
    return tmp_path / "quantised", tmp_path / "plain"


@pytest.mark.parametrize(("dtype", "apart"), [("float32", 1e-5), ("bfloat16", 0.03)])
@pytest.mark.usefixtures("backend")
@torch.no_grad()
def test_scores_agree_for_every_scheme(dtype: str, apart: float, folders: tuple[Path, Path]) -> None:
    quantised, plain = folders
    tokens = torch.randint(0, 300, (60,), generator=torch.Generator().manual_seed(1)).tolist()
    expected = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32)(torch.tensor([tokens])).logits[0]
    found = run(loaded(quantised, dtype), tokens, [40, 1, 1, 4, 14]).logits
    assert float((found - expected).norm() / expected.norm()) < apart


@torch.no_grad()
def test_the_4_bit_demo_model_speaks_like_the_plain_one(backend: str) -> None:
    """At every place of a text, the probabilities of all words together are apart by less than 0.2.

    It is about 0.1 through torch, whose int4 product rounds scales to bfloat16; another model would be apart by 1.
    """
    plain, quantised = ensure_demo_model(), ensure_demo_model(quantised=True)
    tokens = [504, 3575, 282, 4649, 314, 7042, 30, 657, 314, 260, 2240, 282, 4649, 284, 624, 314, 7042, 30]
    reference = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32)(torch.tensor([tokens])).logits[0]
    found = run(loaded(quantised, "bfloat16"), tokens, [10, 1, 1, 6]).logits
    apart = (found.log_softmax(-1).exp() - reference.log_softmax(-1).exp()).abs().sum(-1)
    assert float(apart.max()) < 0.2, backend
