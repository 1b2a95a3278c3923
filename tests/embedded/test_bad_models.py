"""Model folders that cannot be served: each is one clear error that names the thing."""

import asyncio
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from firstlight.embedded.errors import ModelNotUsable, WaitTimedOut
from firstlight.embedded.front.text import load_text
from firstlight.embedded.model import patience
from firstlight.embedded.model.checkpoint import open_checkpoint
from firstlight.embedded.model.config import read_config

Tensors = dict[str, np.ndarray]


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


MISTRAL, QWEN2 = {"architectures": ["MistralForCausalLM"]}, {"architectures": ["Qwen2ForCausalLM"]}
LLAMA3 = {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
BAD_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "other architecture": ({"architectures": ["MambaForCausalLM"]}, "names MambaForCausalLM"),
    "no architecture": ({"architectures": None}, "names no architecture"),
    "architecture of another kind": (
        {"architectures": [["LlamaForCausalLM"]]},
        "this engine serves Llama",
    ),
    "missing key": ({"hidden_size": None}, "hidden_size"),
    "negative size": ({"num_hidden_layers": -1}, "num_hidden_layers"),
    "more layers than anything has": ({"num_hidden_layers": 10**12}, "num_hidden_layers"),
    "no heads": ({"num_attention_heads": 0}, "num_attention_heads"),
    "a size that is text": ({"vocab_size": "300"}, "vocab_size"),
    "a huge vocabulary": ({"vocab_size": 2**63}, "vocab_size"),
    "a negative epsilon": ({"rms_norm_eps": -1e-5}, "rms_norm_eps"),
    "an epsilon that is none": ({"rms_norm_eps": None}, "rms_norm_eps"),
    "an odd head": ({"head_dim": 15}, "head_dim of 15"),
    "heads that do not fit": ({"hidden_size": 66}, "hidden_size to 66"),
    "heads that do not divide": ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
    "other activation": ({"hidden_act": "gelu"}, "hidden_act to 'gelu'"),
    "other rotation": ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_type to 'yarn'"),
    "rotation without a kind": ({"rope_scaling": {"rope_type": None}}, "rope_type to None"),
    "rotation of a wild kind": ({"rope_parameters": {"rope_type": ["llama3"]}}, "rope_type to ['llama3']"),
    "half a rotation": ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "low_freq_factor"),
    "a rotation that divides by zero": (
        {"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0, "original_max_position_embeddings": 64}},
        "low_freq_factor",
    ),
    "a rotation shrunk to nothing": ({"rope_scaling": {"rope_type": "linear", "factor": 0.0}}, "factor"),
    "a base of rotation that is negative": ({"rope_theta": -1.0}, "rope_theta"),
    "part of a head rotated": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    "part of a head rotated, newer words": (
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        "partial_rotary_factor",
    ),
    "a rotation of neighbours": ({"rope_interleaved": True}, "rope_interleaved"),
    "other dtype": ({"torch_dtype": "float8_e4m3fn"}, "dtype to 'float8_e4m3fn'"),
    "an empty window": ({**MISTRAL, "sliding_window": 0}, "sliding_window"),
    "windows for some layers of Mistral": ({**MISTRAL, "layer_types": ["full_attention"] * 2}, "layer_types"),
    "an unknown kind of layer": ({**QWEN2, "layer_types": ["linear_attention"] * 2}, "layer_types"),
    "too few kinds of layers": ({**QWEN2, "layer_types": ["full_attention"]}, "1 entries for 2 layers"),
    "a window of no size": ({**QWEN2, "layer_types": ["sliding_attention"] * 2}, "no sliding_window is in use"),
}


@pytest.mark.parametrize(("changes", "said"), BAD_CONFIGS.values(), ids=BAD_CONFIGS.keys())
def test_a_configuration_we_cannot_honour(
    changes: dict[str, Any], said: str, make_model: Callable[..., Path], tmp_path: Path
) -> None:
    change_config(make_model(tmp_path), **changes)
    with pytest.raises(ModelNotUsable) as raised:
        read_config(tmp_path)
    assert said in raised.value.message
    assert str(tmp_path / "config.json") in raised.value.message


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"\xff\xfe"])
def test_a_configuration_that_is_none(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelNotUsable, match=r"config\.json"):
        read_config(tmp_path)


def _drop(tensors: Tensors) -> None:
    del tensors["model.layers.1.mlp.up_proj.weight"]


def _add(tensors: Tensors) -> None:
    tensors["model.layers.0.self_attn.q_proj.bias"] = np.zeros(64, np.float32)


def _reshape(tensors: Tensors) -> None:
    tensors["model.norm.weight"] = np.zeros(63, np.float32)


def _retype(tensors: Tensors) -> None:
    tensors["model.norm.weight"] = np.zeros(64, np.int8)


BAD_TENSORS: dict[str, tuple[Callable[[Tensors], None], str]] = {
    "missing": (_drop, "lack tensor model.layers.1.mlp.up_proj.weight"),
    "unknown": (_add, "have tensor model.layers.0.self_attn.q_proj.bias"),
    "misshapen": (_reshape, r"model.norm.weight in .* has shape \[63\]; config.json asks for \[64\]"),
    "of another type": (_retype, "model.norm.weight in .* is I8"),
}


@pytest.mark.parametrize(("spoil", "said"), BAD_TENSORS.values(), ids=BAD_TENSORS.keys())
def test_a_tensor_that_is_wrong_is_named(
    spoil: Callable[[Tensors], None], said: str, make_model: Callable[..., Path], tmp_path: Path
) -> None:
    path = make_model(tmp_path) / "model.safetensors"
    tensors = load_file(path)
    spoil(tensors)
    save_file(tensors, path)
    with pytest.raises(ModelNotUsable, match=said):
        open_checkpoint(tmp_path, read_config(tmp_path))


@pytest.mark.parametrize("size", [0, 4, 100, -1])
def test_a_file_cut_short_is_named(size: int, make_model: Callable[..., Path], tmp_path: Path) -> None:
    path = make_model(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelNotUsable, match=r"model\.safetensors \(\d+ bytes\) is damaged or cut short"):
        open_checkpoint(tmp_path, read_config(tmp_path))


def test_a_pipe_in_place_of_weights_is_not_waited_for(make_model: Callable[..., Path], tmp_path: Path) -> None:
    path = make_model(tmp_path) / "model.safetensors"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ModelNotUsable, match="is not a regular file"):
        open_checkpoint(tmp_path, read_config(tmp_path))


def test_no_weights_at_all(make_model: Callable[..., Path], tmp_path: Path) -> None:
    (make_model(tmp_path) / "model.safetensors").unlink()
    with pytest.raises(ModelNotUsable, match=r"weight file .*model\.safetensors is missing"):
        open_checkpoint(tmp_path, read_config(tmp_path))


def shard(folder: Path) -> list[str]:
    """Deal the tensors out to two files with an index, as large checkpoints come."""
    whole = folder / "model.safetensors"
    tensors = load_file(whole)
    whole.unlink()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {name: names[place % 2] for place, name in enumerate(sorted(tensors))}
    for file in names:
        save_file({name: tensors[name] for name in index if index[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return names


def test_shards_are_found_by_their_index(make_model: Callable[..., Path], tmp_path: Path) -> None:
    whole = open_checkpoint(make_model(tmp_path), read_config(tmp_path))
    names = shard(tmp_path)
    parts = open_checkpoint(tmp_path, read_config(tmp_path))
    assert {tensor.file.name for tensor in parts.values()} == set(names)
    assert {name: tensor.shape for name, tensor in parts.items()} == {
        name: tensor.shape for name, tensor in whole.items()
    }


def test_a_missing_shard_is_named(make_model: Callable[..., Path], tmp_path: Path) -> None:
    make_model(tmp_path)
    (tmp_path / shard(tmp_path)[1]).unlink()
    with pytest.raises(ModelNotUsable, match=r"weight file .*model-00002-of-00002\.safetensors is missing"):
        open_checkpoint(tmp_path, read_config(tmp_path))


def test_an_index_that_is_none(make_model: Callable[..., Path], tmp_path: Path) -> None:
    (make_model(tmp_path) / "model.safetensors.index.json").write_text('{"weight_map": 5}')
    with pytest.raises(ModelNotUsable, match="has no weight_map"):
        open_checkpoint(tmp_path, read_config(tmp_path))


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/model.safetensors", "..", "."])
def test_an_index_that_names_a_file_elsewhere(name: str, make_model: Callable[..., Path], tmp_path: Path) -> None:
    index = {"weight_map": {"model.norm.weight": name}}
    (make_model(tmp_path) / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelNotUsable, match=r"not a file of its own folder|is not a regular file"):
        open_checkpoint(tmp_path, read_config(tmp_path))


def test_a_tensor_in_two_shards_is_named(make_model: Callable[..., Path], tmp_path: Path) -> None:
    make_model(tmp_path)
    first, second = (tmp_path / name for name in shard(tmp_path))
    save_file(load_file(second) | {"model.norm.weight": np.zeros(64, np.float32)}, second)
    save_file(load_file(first) | {"model.norm.weight": np.zeros(64, np.float32)}, first)
    with pytest.raises(ModelNotUsable, match=r"tensor model.norm.weight is both in .*00001.* and in .*00002"):
        open_checkpoint(tmp_path, read_config(tmp_path))


def header_of(entry: dict[str, Any]) -> bytes:
    return json.dumps({"model.norm.weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | entry}).encode()


BAD_HEADERS: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{" * 40, "damaged or cut short"),
    "deep nonsense": (b"[" * 100_000, "damaged or cut short"),
    "a list": (b"[1]", "damaged or cut short"),
    "a tensor that is a number": (b'{"model.norm.weight": 5}', "damaged or cut short"),
    "no offsets": (b'{"model.norm.weight": {"dtype": "F32", "shape": [2]}}', "data_offsets"),
    "a negative shape": (header_of({"shape": [-2]}), "shape"),
    "a huge shape": (header_of({"shape": [2**40, 2**40]}), "has 8 bytes and should have"),
    "offsets that are swapped": (header_of({"data_offsets": [8, 0]}), "has -8 bytes and should have 8"),
    "offsets behind the end": (header_of({"data_offsets": [2**40, 2**40 + 8]}), "ends at byte"),
    "an unknown kind": (header_of({"dtype": "F4"}), "tensor model.norm.weight .* is F4"),
}


@pytest.mark.parametrize(("header", "said"), BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_a_header_that_lies(header: bytes, said: str, make_model: Callable[..., Path], tmp_path: Path) -> None:
    path = make_model(tmp_path) / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(ModelNotUsable, match=said) as raised:
        open_checkpoint(tmp_path, read_config(tmp_path))
    assert str(path) in raised.value.message


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 10**9])
def test_a_header_longer_than_its_file(length: int, make_model: Callable[..., Path], tmp_path: Path) -> None:
    path = make_model(tmp_path) / "model.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
    with pytest.raises(ModelNotUsable, match="it has no whole header"):
        open_checkpoint(tmp_path, read_config(tmp_path))


def test_a_disk_that_never_answers_is_waited_for_with_its_name(
    make_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_model(tmp_path)
    answer = threading.Event()
    monkeypatch.setattr(patience, "PATIENCE_S", 0.1)
    monkeypatch.setattr(Path, "read_bytes", lambda path: str(answer.wait(60)).encode())
    with pytest.raises(WaitTimedOut, match=r"waited 0.1 s for .*config\.json"):
        read_config(tmp_path)
    answer.set()


def test_a_configuration_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ModelNotUsable, match="is not a regular file"):
        read_config(tmp_path)


def test_leftovers_of_older_writers_do_no_harm(make_model: Callable[..., Path], tmp_path: Path) -> None:
    path = make_model(tmp_path) / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(8, np.float32)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    save_file(tensors, path)
    assert "lm_head.weight" not in open_checkpoint(tmp_path, read_config(tmp_path))


@pytest.mark.parametrize("content", [None, b"{}", b"\x00\xff"])
def test_a_tokenizer_that_is_none(content: bytes | None, make_model: Callable[..., Path], tmp_path: Path) -> None:
    path = make_model(tmp_path) / "tokenizer.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelNotUsable, match=r"tokenizer\.json"):
        load_text(tmp_path)


def test_a_chat_template_that_is_no_template(make_model: Callable[..., Path], tmp_path: Path) -> None:
    (make_model(tmp_path) / "tokenizer_config.json").write_text('{"chat_template": "{% if %}"}')
    text = load_text(tmp_path)
    with pytest.raises(ModelNotUsable, match="chat template"):
        asyncio.run(text.start())
