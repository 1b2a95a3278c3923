"""The conversion, on a tiny model whose weights are known: what went into the GGUF file comes out."""

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize, quantize
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.embedded.demo_model.matrices import matrices
from tokenizers import Tokenizer

from firstlight.embedded.demo.gguf_convert import ConversionError, as_bfloat16, convert, rows_as_halves
from firstlight.embedded.model.checkpoint import open_checkpoint
from firstlight.embedded.model.config import read_config
from firstlight.embedded.model.linear import Quantised
from firstlight.embedded.model.weights import load_weights


@pytest.fixture
def converted(tiny, tmp_path: Path) -> Path:
    convert(tiny.path, tmp_path)
    return tmp_path


def test_every_weight_comes_out_as_it_went_in(tiny, converted: Path) -> None:
    found = load_file(converted / "model.safetensors")
    assert set(found) == set(tiny.weights)
    for name, numbers in tiny.weights.items():
        assert found[name].dtype == torch.bfloat16
        assert torch.equal(found[name], torch.from_numpy(numbers).to(torch.bfloat16)), name


@pytest.mark.parametrize("kind", [gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0])
def test_quantised_weights_come_out_as_the_numbers_they_stand_for(tiny, write_gguf, kind, tmp_path: Path) -> None:
    packed = write_gguf(tmp_path / "packed.gguf", tiny.weights, quantised=kind)
    convert(packed.path, tmp_path)
    found = load_file(tmp_path / "model.safetensors")
    for name, numbers in tiny.weights.items():
        expected = dequantize(quantize(numbers, kind), kind) if numbers.ndim > 1 else numbers
        assert torch.equal(found[name], torch.from_numpy(expected).to(torch.bfloat16)), name


def test_blocks_that_are_kept_stand_for_the_numbers_of_the_file(tiny_blocks, tmp_path: Path) -> None:
    """Every number is the one that `gguf` makes of it, in 32 bits; only the rows of q and k have moved."""
    convert(tiny_blocks.path, tmp_path, blocks=True)
    config = read_config(tmp_path)
    checkpoint = open_checkpoint(tmp_path, config)
    weights = load_weights(config, checkpoint, torch.float32, count=lambda done, total, unit: None, native=True)

    def expected(*modules: str) -> torch.Tensor:
        numbers = [tiny_blocks.weights[f"{module}.weight"] for module in modules]
        kind = gguf.GGMLQuantizationType.Q8_0 if "embed" in modules[0] else gguf.GGMLQuantizationType.Q4_1
        return torch.from_numpy(np.concatenate([dequantize(quantize(part, kind), kind) for part in numbers]))

    for weight, modules in matrices(weights):
        assert isinstance(weight, Quantised)
        assert torch.equal(weight.dequantised(torch.float32), expected(*modules)), modules
    assert isinstance(weights.head, Quantised)
    assert torch.equal(weights.head.dequantised(torch.float32), expected("model.embed_tokens"))
    assert torch.equal(weights.norm, torch.from_numpy(tiny_blocks.weights["model.norm.weight"]))


def test_blocks_of_another_kind_are_not_kept(tiny, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"embed_tokens.weight is F32; only Q8_0 is kept as blocks"):
        convert(tiny.path, tmp_path, blocks=True)


def test_an_output_matrix_of_its_own_unties_the_embeddings(tiny, write_gguf, tmp_path: Path) -> None:
    head = np.random.default_rng(1).standard_normal(tiny.weights["model.embed_tokens.weight"].shape).astype("f4")
    untied = write_gguf(tmp_path / "untied.gguf", {**tiny.weights, "lm_head.weight": head})
    convert(untied.path, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is False
    assert torch.equal(
        load_file(tmp_path / "model.safetensors")["lm_head.weight"], torch.from_numpy(head).to(torch.bfloat16)
    )


def test_attention_is_the_same_in_both_orders() -> None:
    """What the order is for: neighbours rotated in GGUF's rows give the scores of halves rotated in ours."""
    heads, half = 3, 4
    random = np.random.default_rng(5)
    q_rows, k_rows = random.standard_normal((2, heads * 2 * half, 16))
    x_q, x_k = random.standard_normal((2, 16))
    frequencies = 100.0 ** (-np.arange(half) / half)

    def neighbours(rows: np.ndarray, x: np.ndarray, position: int) -> np.ndarray:
        pairs = (rows @ x).reshape(heads, half, 2)
        return (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * position * frequencies)

    def halves(rows: np.ndarray, x: np.ndarray, position: int) -> np.ndarray:
        both = (rows_as_halves(rows, heads) @ x).reshape(heads, 2, half)
        return (both[:, 0] + 1j * both[:, 1]) * np.exp(1j * position * frequencies)

    def scores(rotate: Callable[[np.ndarray, np.ndarray, int], np.ndarray]) -> np.ndarray:
        return (rotate(q_rows, x_q, 7) * rotate(k_rows, x_k, 3).conj()).sum(-1).real

    assert np.allclose(scores(neighbours), scores(halves))
    assert not np.array_equal(rows_as_halves(q_rows, heads), q_rows)


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1))
def test_rounding_to_bfloat16_is_that_of_torch(numbers: list[float]) -> None:
    singles = np.array(numbers, dtype="f4")
    expected = torch.from_numpy(singles).to(torch.bfloat16).view(torch.int16).numpy().view("u2")
    assert np.array_equal(as_bfloat16(singles), expected)


def test_the_configuration_says_what_the_file_says(converted: Path) -> None:
    config = json.loads((converted / "config.json").read_text())
    expected = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "vocab_size": 262,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    assert expected.items() <= config.items()


def test_the_tokenizer_merges_splits_digits_and_knows_its_special_tokens(tiny, converted: Path) -> None:
    tokenizer = Tokenizer.from_file(str(converted / "tokenizer.json"))
    assert tokenizer.encode("and and 42").tokens == ["and", "Ġand", "Ġ", "4", "2"]
    assert tokenizer.encode("<|start|>a").ids == [1, tiny.tokens.index("a")]


@pytest.mark.parametrize(
    ("change", "said"),
    [({"architecture": "gemma"}, "gemma"), ({"pre": "qwen2"}, "qwen2")],
)
def test_what_is_not_known_is_refused_by_name(tiny, write_gguf, change, said: str, tmp_path: Path) -> None:
    other = write_gguf(tmp_path / "other.gguf", tiny.weights, **change)
    with pytest.raises(ConversionError, match=said):
        convert(other.path, tmp_path)


@pytest.mark.parametrize("kept", [0, 3, 100, 5000, -100])
def test_a_truncated_file_is_refused(tiny, kept: int, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny.path.read_bytes()[:kept])
    with pytest.raises(ConversionError, match="not a readable GGUF file"):
        convert(cut, tmp_path)
