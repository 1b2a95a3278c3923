"""Drafter folders: what is loaded, and what is refused by its name."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.embedded.errors import ModelNotUsable
from firstlight.embedded.model.config import ModelConfig, read_config
from firstlight.embedded.speculate.eagle_checkpoint import load_draft, open_draft

Change = Callable[[dict[str, Tensor]], None]
Drafter = Callable[..., Path]
Lists = tuple[list[int] | None, list[int] | None]
"""The ids at the top of config.json, and those in eagle_config."""


@pytest.fixture
def target_of(small_target: dict[str, Any], tmp_path: Path) -> Callable[[int], ModelConfig]:
    """The small target with another number of layers."""

    def read(layers: int) -> ModelConfig:
        folder = tmp_path / "target"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(small_target | {"num_hidden_layers": layers}))
        return read_config(folder)

    return read


@pytest.fixture
def target(target_of: Callable[[int], ModelConfig]) -> ModelConfig:
    return target_of(8)


@pytest.fixture
def drafter(make_drafter: Drafter, small_target: dict[str, Any], tmp_path: Path) -> Drafter:
    """Writes a drafter for the small target, changed as asked for."""
    return partial(make_drafter, tmp_path / "drafter", small_target)


def refused(folder: Path, target: ModelConfig, *words: str) -> None:
    """The folder is refused with one message that has all `words`."""
    with pytest.raises(ModelNotUsable) as caught:
        load_draft(open_draft(folder, target), torch.float32)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("prefix", ["midlayer.", "layers.0."])
def test_the_plain_layout_is_loaded_under_both_names(drafter: Drafter, target: ModelConfig, prefix: str) -> None:
    folder = drafter(prefix=prefix)
    checkpoint = open_draft(folder, target)
    weights = load_draft(checkpoint, torch.float32)
    assert checkpoint.config.taps == (2, 4, 5)
    assert checkpoint.config.draft_vocab == 96
    assert weights.fuse.shape == (64, 192)
    assert weights.qkv.shape == (128, 128)
    assert weights.embedding is None
    assert weights.words is not None
    assert weights.words.tolist() == sorted(set(weights.words.tolist()))


def test_a_drafter_without_words_of_its_own_may_do_without_a_head(drafter: Drafter, target: ModelConfig) -> None:
    drop: Change = lambda tensors: tensors.__delitem__("lm_head.weight")  # noqa: E731
    folder = drafter(words=None, change=drop)
    weights = load_draft(open_draft(folder, target), torch.float32)
    assert weights.head is None
    assert weights.words is None


def test_its_own_embedding_is_kept(drafter: Drafter, target: ModelConfig) -> None:
    own = torch.randn(300, 64)
    folder = drafter(change=lambda it: it.update({"embed_tokens.weight": own}))
    weights = load_draft(open_draft(folder, target), torch.float32)
    assert weights.embedding is not None
    torch.testing.assert_close(weights.embedding.tensor, own)


NAMES = (
    *("fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"),
    *("midlayer.input_layernorm.weight", "midlayer.hidden_norm.weight", "midlayer.post_attention_layernorm.weight"),
    *(f"midlayer.self_attn.{part}_proj.weight" for part in "qkvo"),
    *(f"midlayer.mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_tensor_is_named(drafter: Drafter, target: ModelConfig, name: str) -> None:
    folder = drafter(change=lambda it: it.__delitem__(name))
    refused(folder, target, "lacks tensor", name)


@pytest.mark.parametrize("name", NAMES)
def test_a_misshapen_tensor_is_named(drafter: Drafter, target: ModelConfig, name: str) -> None:
    def cut(tensors: dict[str, Tensor]) -> None:
        tensors[name] = tensors[name][:-1].contiguous()

    folder = drafter(change=cut)
    refused(folder, target, "has shape", f"tensor {name} ")


@pytest.mark.parametrize(("name", "dtype"), [("fc.weight", torch.int8), ("d2t", torch.float32), ("t2d", torch.int64)])
def test_a_tensor_of_another_kind_is_named(
    drafter: Drafter,
    target: ModelConfig,
    name: str,
    dtype: torch.dtype,
) -> None:
    folder = drafter(change=lambda it: it.update({name: it[name].to(dtype)}))
    refused(folder, target, f"tensor {name} ", "it must be")


@pytest.mark.parametrize(
    "name", ["layers.1.mlp.up_proj.weight", "fc.bias", "fc_norm.0.weight", "input_norm.weight", "model.norm.weight"]
)
def test_an_unknown_tensor_is_named(drafter: Drafter, target: ModelConfig, name: str) -> None:
    folder = drafter(change=lambda it: it.update({name: torch.zeros(64)}))
    refused(folder, target, "has tensor", name)


def test_a_layer_under_two_names_is_refused(drafter: Drafter, target: ModelConfig) -> None:
    twice = {"layers.0.hidden_norm.weight": torch.ones(64)}
    folder = drafter(change=lambda it: it.update(twice))
    refused(folder, target, "midlayer.hidden_norm.weight under two names")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda it: it.update(d2t=it["d2t"] + 300), ("d2t", "leads to token")),
        (lambda it: it.update(d2t=it["d2t"] - 400), ("d2t", "leads to token")),
        (lambda it: it.update(d2t=torch.zeros_like(it["d2t"])), ("d2t and t2d",)),
        (lambda it: it.update(t2d=~it["t2d"]), ("d2t and t2d",)),
    ],
)
def test_maps_of_the_vocabulary_must_agree(
    drafter: Drafter,
    target: ModelConfig,
    change: Change,
    words: tuple[str, ...],
) -> None:
    refused(drafter(change=change), target, *words)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        *(({key: True}, key) for key in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "bias")),
        *(({key: True}, key) for key in ("attention_bias", "use_sliding_window", "use_aux_norm", "rope_interleaved")),
        ({"eagle_config": {"norm_before_fc": True}}, "norm_before_fc"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state"),
        ({"sliding_window": 2048}, "sliding_window"),
        ({"num_hidden_layers": 2}, "num_hidden_layers to 2"),
        ({"target_hidden_size": 128}, "target_hidden_size to 128"),
        ({"vocab_size": 301}, "vocab_size to 301"),
        ({"draft_vocab_size": 301}, "draft_vocab_size"),
        ({"draft_vocab_size": "many"}, "draft_vocab_size"),
        ({"hidden_act": "gelu"}, "hidden_act to 'gelu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type to 'yarn'"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"speculators_model_type": "eagle3"}, "speculators_model_type"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"architectures": ["LlamaForCausalLM"]}, "LlamaForCausalLM;"),
        ({"num_attention_heads": 3}, "3 heads"),
    ],
)
def test_an_option_that_is_not_implemented_is_named(
    drafter: Drafter,
    target: ModelConfig,
    changes: dict[str, Any],
    word: str,
) -> None:
    folder = drafter()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    refused(folder, target, word)


def test_options_that_are_off_change_nothing(drafter: Drafter, target: ModelConfig) -> None:
    off = {"norm_before_residual": False, "fc_norm": None, "sliding_window": None, "target_hidden_size": 64}
    scaling = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    assert open_draft(drafter(**off, **scaling), target).config.taps


@pytest.mark.parametrize(
    ("layers", "lists", "taps"),
    [
        (30, (None, None), (2, 15, 27)),
        (30, ([27, 2, 15], None), (2, 15, 27)),
        (30, (None, [1, 14, 26]), (2, 15, 27)),
        (30, ([2, 15, 27], [1, 14, 26]), (2, 15, 27)),
        (30, ([0, 15, 30], None), (0, 15, 30)),
        (7, (None, None), (2, 3, 4)),
    ],
)
def test_states_are_found_in_both_conventions(
    drafter: Drafter,
    target_of: Callable[[int], ModelConfig],
    layers: int,
    lists: Lists,
    taps: tuple[int, ...],
) -> None:
    top, nested = lists
    ids = {"eagle_aux_hidden_state_layer_ids": top, "eagle_config": {"eagle_aux_hidden_state_layer_ids": nested}}
    assert open_draft(drafter(**ids), target_of(layers)).config.taps == taps


@pytest.mark.parametrize(
    ("layers", "lists", "words"),
    [
        (30, ([2, 15, 27], [2, 15, 27]), ("[2, 15, 27]", "[3, 16, 28]", "SGLang")),
        (30, ([2, 2, 27], None), ("[2, 2, 27]", "not distinct")),
        (30, ([2, 15, 31], None), ("[2, 15, 31]", "30 layers")),
        (30, ([-1, 15, 27], None), ("[-1, 15, 27]",)),
        (30, ([], None), ("[]",)),
        (6, (None, None), ("[2, 3, 3]", "below 7 layers")),
        (2, (None, None), ("[-1, 1, 2]",)),
    ],
)
def test_states_that_cannot_be_are_refused(
    drafter: Drafter,
    target_of: Callable[[int], ModelConfig],
    layers: int,
    lists: Lists,
    words: tuple[str, ...],
) -> None:
    top, nested = lists
    ids = {"eagle_aux_hidden_state_layer_ids": top, "eagle_config": {"eagle_aux_hidden_state_layer_ids": nested}}
    refused(drafter(**ids), target_of(layers), *words)


def test_a_number_of_states_must_be_theirs(drafter: Drafter, target: ModelConfig) -> None:
    refused(drafter(num_aux_hidden_states=4), target, "num_aux_hidden_states")


def test_damaged_files_are_named(drafter: Drafter, target: ModelConfig) -> None:
    folder = drafter()
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    refused(folder, target, "model.safetensors", "damaged")
    weights.unlink()
    refused(folder, target, "model.safetensors", "missing")
    (folder / "config.json").write_text("[")
    with pytest.raises(ModelNotUsable, match=re.escape("config.json cannot be read")):
        open_draft(folder, target)
