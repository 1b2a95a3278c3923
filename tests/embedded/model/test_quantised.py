"""4-bit and 8-bit weights: from the files of other programs to products, in each layout."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from firstlight.embedded.errors import ModelNotUsable, WrongUsage
from firstlight.embedded.model import reading
from firstlight.embedded.model.filling import QuantisedPart
from firstlight.embedded.model.linear import Dense, Quantised, TorchPacked
from firstlight.embedded.model.quantised import pack4, unpack4, unpack_words
from firstlight.embedded.model.reading import Cut, Reader
from firstlight.embedded.model.safetensors_file import read_header
from firstlight.embedded.model.weights import DecoderWeights

GOLDEN = Path(__file__).parent / "data" / "pack_quantized.safetensors"
"""Three matrices compressed, and decompressed again, by compressed-tensors 0.17."""

Load = Callable[..., DecoderWeights]
SCHEMES: dict[str, tuple[int, bool | None]] = {
    "32, symmetric": (32, True),
    "32, zero points": (32, False),
    "64, symmetric": (64, True),
    "128, zero points": (128, False),
    "GGUF blocks": (32, None),
}
WIDE = {"hidden_size": 256, "intermediate_size": 768, "num_attention_heads": 8, "num_key_value_heads": 4}


# --- layouts --------------------------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 2**32))
def test_packing_comes_back(rows: int, blocks: int, seed: int) -> None:
    levels = torch.randint(0, 16, (rows, 64 * blocks), generator=torch.Generator().manual_seed(seed)).byte()
    assert torch.equal(unpack4(pack4(levels)), levels)


def test_the_kernels_layout_is_what_its_description_says() -> None:
    levels = torch.randint(0, 16, (3, 128), generator=torch.Generator().manual_seed(5)).byte()
    words = pack4(levels).view(torch.int16).numpy().view(np.uint16)
    assert words.shape == (3, 32)
    for column in range(128):
        block, inside = divmod(column, 64)
        nibble, word = divmod(inside, 16)
        assert (words[:, 16 * block + word] >> 4 * nibble & 15).tolist() == levels[:, column].tolist()


def test_words_hold_their_first_number_in_their_lowest_bits() -> None:
    words = torch.tensor([[0x76543210, 0xFEDCBA98 - 2**32]], dtype=torch.int32)
    assert unpack_words(words).tolist() == [list(range(16))]


@pytest.mark.parametrize("name", ["symmetric", "asymmetric", "half"])
def test_what_another_program_compressed_is_read_as_it_meant(name: str) -> None:
    stored, plain = read_header(GOLDEN), load_file(GOLDEN)[f"{name}.decompressed"]
    zero_point = stored.get(f"{name}.weight_zero_point")
    part = QuantisedPart(
        packed=Cut.of(stored[f"{name}.weight_packed"]),
        scale=Cut.of(stored[f"{name}.weight_scale"]),
        minimum=None,
        zero_point=None if zero_point is None else Cut.of(zero_point),
        bits=4,
    )
    with GOLDEN.open("rb") as file:
        numbers = part.numbers(Reader({GOLDEN: file.fileno()}, lambda piece: None))
    assert numbers.shape == plain.shape
    torch.testing.assert_close(numbers.to(plain.dtype), plain, rtol=0, atol=0)


# --- whole models ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=SCHEMES.values(), ids=SCHEMES.keys())
def both(request: pytest.FixtureRequest, make_quantised: Callable[..., None], tmp_path: Path) -> tuple[Path, Path]:
    """A quantised model, and the model of the numbers that it stands for."""
    group, symmetric = request.param
    make_quantised(tmp_path / "quantised", tmp_path / "plain", group, symmetric, **WIDE)
    return tmp_path / "quantised", tmp_path / "plain"


def matrices(weights: DecoderWeights) -> dict[str, Any]:
    layers = {
        f"{index}.{name}": getattr(layer, name)
        for index, layer in enumerate(weights.layers)
        for name in ("qkv", "output", "gate_up", "down")
    }
    return layers | {"head": weights.head}


def some_rows(width: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(5, width, generator=torch.Generator().manual_seed(2)).to(dtype)


def test_in_the_kernels_layout_every_number_is_exact(
    both: tuple[Path, Path], load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PIECE", 1000)
    quantised, plain = (load(folder, native=True) for folder in both)
    expected = matrices(plain)
    for name, weight in matrices(quantised).items():
        numbers = expected[name].tensor
        assert weight.shape == tuple(numbers.shape)
        x = some_rows(weight.shape[1], torch.float32)
        if isinstance(weight, Quantised):
            torch.testing.assert_close(weight.dequantised(torch.float32), numbers, rtol=1e-6, atol=1e-7)
            assert weight.bytes < 0.36 * numbers.numel() * 4
        torch.testing.assert_close(weight.product(x), expected[name].product(x), rtol=1e-4, atol=1e-4)
    ids = torch.tensor([3, 299, 3])
    torch.testing.assert_close(quantised.embedding.rows(ids).float(), plain.embedding.rows(ids))


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_in_the_layout_of_torch_products_are_as_exact_as_bfloat16(
    rows: int, both: tuple[Path, Path], load: Load
) -> None:
    quantised, plain = load(both[0], torch.bfloat16), load(both[1], torch.float32)
    kinds = set()
    for name, weight in matrices(quantised).items():
        kinds.add(type(weight))
        x = torch.randn(rows, weight.shape[1], generator=torch.Generator().manual_seed(2)).bfloat16()
        found, expected = weight.product(x), matrices(plain)[name].product(x.float())
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.02 * float(expected.abs().max()))
    assert kinds == {TorchPacked, Dense}  # the head is never of 4 bits here


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_where_torch_has_no_fast_product_numbers_are_plain(
    dtype: torch.dtype, both: tuple[Path, Path], load: Load
) -> None:
    quantised, plain = load(both[0], dtype), load(both[1], dtype)
    for name, weight in matrices(quantised).items():
        assert isinstance(weight, Dense)
        torch.testing.assert_close(weight.tensor, matrices(plain)[name].tensor, rtol=2e-3, atol=1e-6)


def test_rows_that_torch_cannot_multiply_as_4_bit_become_plain(
    make_quantised: Callable[..., None], load: Load, tmp_path: Path
) -> None:
    """Eight heads of 4 and one of keys and of values are 40 rows, no multiple of 16."""
    shape = {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 4}
    make_quantised(tmp_path / "quantised", tmp_path / "plain", 32, True, **shape)
    layer, plain = (load(tmp_path / name, torch.bfloat16).layers[0] for name in ("quantised", "plain"))
    assert isinstance(layer.gate_up, TorchPacked)
    assert isinstance(layer.qkv, Dense)
    assert torch.equal(layer.qkv.tensor, plain.qkv.tensor)


def test_ranks_hold_their_parts_of_packed_weights(both: tuple[Path, Path], load: Load) -> None:
    for rank in range(2):
        quantised, plain = (load(folder, native=True, rank=rank, ranks=2) for folder in both)
        expected = matrices(plain)
        for name, weight in matrices(quantised).items():
            if isinstance(weight, Quantised):
                numbers = weight.dequantised(torch.float32)
                torch.testing.assert_close(numbers, expected[name].tensor, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("symmetric", [True, False, None])
def test_a_head_of_its_own_is_dealt_out_by_rows(
    symmetric: bool | None, make_quantised: Callable[..., None], load: Load, tmp_path: Path
) -> None:
    """Of 301 rows, each of two ranks has as many, in whole words of zero points; those beyond are zero."""
    shape = {"tie_word_embeddings": False, "vocab_size": 301, "intermediate_size": 128}
    make_quantised(tmp_path / "quantised", tmp_path / "plain", 32, symmetric, ignored=[], **shape)
    parts = [load(tmp_path / "quantised", native=True, rank=rank, ranks=2).head for rank in range(2)]
    assert all(isinstance(part, Quantised) for part in parts)
    assert parts[0].shape == parts[1].shape
    numbers = torch.cat([part.dequantised(torch.float32) for part in parts])
    plain = load(tmp_path / "plain").head.tensor
    torch.testing.assert_close(numbers[:301], plain, rtol=1e-6, atol=1e-7)
    assert not numbers[301:].any()


@pytest.mark.parametrize(
    ("group", "symmetric", "shape", "said"),
    [
        (64, True, {}, "64 columns of o_proj in groups of 64"),
        (32, True, {"intermediate_size": 96}, "96 columns of down_proj in groups of 32"),
        (32, False, {"num_attention_heads": 16}, "8 rows of k_proj with zero points packed by 8"),
    ],
)
def test_groups_that_cannot_be_dealt_out_are_refused_with_their_numbers(
    group: int, symmetric: bool, shape: dict[str, Any], said: str, refused_for_two: Callable[..., str]
) -> None:
    assert refused_for_two(group, symmetric, **{"intermediate_size": 128, **shape}) == (
        f"{said} cannot be shared by 2 ranks"
    )


@pytest.fixture
def refused_for_two(make_quantised: Callable[..., None], load: Load, tmp_path: Path) -> Callable[..., str]:
    def refused(group: int, symmetric: bool, **shape: Any) -> str:
        make_quantised(tmp_path / "quantised", tmp_path / "plain", group, symmetric, **shape)
        with pytest.raises(WrongUsage) as raised:
            load(tmp_path / "quantised", ranks=2)
        return raised.value.message

    return refused


def test_what_is_ignored_stays_plain(make_quantised: Callable[..., None], load: Load, tmp_path: Path) -> None:
    ignored = [r"re:model\.layers\.0\.", "model.layers.1.mlp.down_proj"]
    make_quantised(tmp_path / "quantised", tmp_path / "plain", 32, True, ignored=ignored)
    first, second = load(tmp_path / "quantised", native=True).layers
    assert {type(weight) for weight in (first.qkv, first.output, first.gate_up, first.down)} == {Dense}
    assert {type(weight) for weight in (second.qkv, second.output, second.gate_up)} == {Quantised}
    assert isinstance(second.down, Dense)


@pytest.mark.parametrize("symmetric", [True, False, None])
def test_columns_are_filled_up_to_whole_blocks(
    symmetric: bool | None, make_quantised: Callable[..., None], load: Load, tmp_path: Path
) -> None:
    make_quantised(tmp_path / "quantised", tmp_path / "plain", 32, symmetric, intermediate_size=96)
    down, plain = (load(tmp_path / name, native=True).layers[1].down for name in ("quantised", "plain"))
    assert isinstance(down, Quantised)
    assert down.shape == (64, 96)
    assert down.packed.shape == (64, 32)
    torch.testing.assert_close(down.dequantised(torch.float32), plain.tensor, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_scales_keep_the_precision_of_the_file(
    stored: torch.dtype, make_quantised: Callable[..., None], load: Load, tmp_path: Path
) -> None:
    """Scales smaller than float16 can hold, and ones that bfloat16 would round."""
    make_quantised(tmp_path / "quantised", tmp_path / "plain", 32, True)
    path = tmp_path / "quantised" / "model.safetensors"
    tensors = load_file(path)
    small = {torch.float16: 1.2345, torch.bfloat16: 1e-7}[stored]
    scales = {name: (small * scale).to(stored) for name, scale in tensors.items() if name.endswith("weight_scale")}
    save_file(tensors | scales, path)
    down = load(tmp_path / "quantised", native=True).layers[0].down
    numbers = numbers_of_down(tensors | scales)
    torch.testing.assert_close(down.dequantised(torch.float32), numbers, rtol=1e-6, atol=0)


def numbers_of_down(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    module = "model.layers.0.mlp.down_proj"
    levels = unpack_words(tensors[f"{module}.weight_packed"]).float() - 8
    return levels * tensors[f"{module}.weight_scale"].float().repeat_interleave(32, dim=1)


def test_progress_counts_every_byte_of_packed_weights(both: tuple[Path, Path], load: Load) -> None:
    stored = read_header(both[0] / "model.safetensors")
    read = sum(tensor.bytes for name, tensor in stored.items() if not name.endswith("weight_shape"))
    told: list[object] = []
    for native in (True, False):
        load(both[0], torch.bfloat16, native=native, count=lambda *step: told.append(step))
        assert told[-1] == (read, read, "bytes")


def test_several_threads_pack_what_one_packs(
    both: tuple[Path, Path], load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PIECE", 1000)
    for options in ({"native": True}, {"native": False}):
        one, many = (matrices(load(both[0], torch.bfloat16, threads=threads, **options)) for threads in (1, 5))
        x = some_rows(256, torch.bfloat16)
        assert all(torch.equal(one[name].product(x), many[name].product(x)) for name in one if "down" not in name)


# --- what is refused ------------------------------------------------------------------------------------------------

SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another method": ({"quant_method": "awq"}, {}, "method 'awq'"),
    "no method": ({"quant_method": None}, {}, "method None"),
    "another format": ({"format": "marlin-24"}, {}, "format in quantization_config is 'marlin-24'"),
    "8 bits": ({}, {"num_bits": 8}, "num_bits in quantization_config is 8"),
    "floats": ({}, {"type": "float"}, "type in quantization_config is 'float'"),
    "one scale a row": (
        {},
        {"strategy": "channel", "group_size": None},
        "strategy in quantization_config is 'channel'",
    ),
    "other groups": ({}, {"group_size": 16}, "group_size in quantization_config is 16"),
    "a negative group": ({}, {"group_size": -1}, "group_size in quantization_config is -1"),
    "groups out of order": ({}, {"actorder": "group"}, "actorder in quantization_config is 'group'"),
    "groups out of order, older words": ({}, {"actorder": True}, "actorder in quantization_config is True"),
    "a quantised cache": ({"kv_cache_scheme": {"num_bits": 8}}, {}, "kv_cache_scheme"),
    "sparse weights": ({"sparsity_config": {"format": "sparse-24-bitmask"}}, {}, "sparsity_config"),
    "no groups at all": ({"config_groups": {}}, {}, "config_groups in quantization_config is 0 groups"),
    "ignored by a broken pattern": ({"ignore": ["re:("]}, {}, "ignore in quantization_config has 're:\\('"),
    "bits that are text": ({}, {"num_bits": "4"}, "num_bits"),
    "half of a stack ignored": (
        {"ignore": ["model.layers.1.self_attn.q_proj"]},
        {},
        "some are quantised and some are not",
    ),
}


@pytest.fixture
def make_and_load(make_model: Callable[..., Path], load: Load, tmp_path: Path) -> Callable[..., None]:
    return lambda **changes: load(make_model(tmp_path, **changes))


@pytest.mark.parametrize(("top", "weights", "said"), SETTINGS.values(), ids=SETTINGS.keys())
def test_a_scheme_we_do_not_know_is_refused_by_name(
    top: dict[str, Any], weights: dict[str, Any], said: str, make_and_load: Callable[..., None]
) -> None:
    known = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32} | weights
    scheme = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": known}},
        "ignore": ["lm_head"],
    }
    with pytest.raises(ModelNotUsable, match=said):
        make_and_load(quantization_config=scheme | top)
