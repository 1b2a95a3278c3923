"""Weights come from files to their places: all of them, each rank its own part, and what is wrong is said."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from firstlight.embedded.errors import ModelNotUsable, WaitTimedOut, WrongUsage
from firstlight.embedded.model import reading
from firstlight.embedded.model.checkpoint import open_checkpoint
from firstlight.embedded.model.config import read_config
from firstlight.embedded.model.linear import Dense
from firstlight.embedded.model.share import check_share
from firstlight.embedded.model.weights import DecoderWeights, load_weights

Load = Callable[..., DecoderWeights]
MakeModel = Callable[..., Path]
BIASES = {"attention_bias": True, "mlp_bias": True}
THREE = {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 24}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece is a few rows, so that every matrix comes in several."""
    monkeypatch.setattr(reading, "PIECE", 1000)


def tensors_of(weights: object, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor that a record of weights holds, by its place."""
    for field in fields(weights):  # type: ignore[arg-type]
        value, name = getattr(weights, field.name), f"{prefix}{field.name}"
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, tuple) and value and not isinstance(value[0], int):
            for index, part in enumerate(value):
                yield from tensors_of(part, f"{name}.{index}.")
        elif hasattr(value, "__dataclass_fields__"):
            yield from tensors_of(value, f"{name}.")


def same(left: DecoderWeights, right: DecoderWeights) -> bool:
    ours, theirs = dict(tensors_of(left)), dict(tensors_of(right))
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def matrix(weight: object) -> torch.Tensor:
    assert isinstance(weight, Dense)
    return weight.tensor


@pytest.mark.usefixtures("small_pieces")
def test_every_tensor_is_in_its_place(load: Load, make_model: MakeModel, tmp_path: Path) -> None:
    folder = make_model(tmp_path, **BIASES, tie_word_embeddings=False)
    stored, weights = load_file(folder / "model.safetensors"), load(folder)
    assert torch.equal(matrix(weights.embedding), stored["model.embed_tokens.weight"])
    assert torch.equal(matrix(weights.head), stored["lm_head.weight"])
    assert torch.equal(weights.norm, stored["model.norm.weight"])
    assert len(weights.layers) == 2
    for index, layer in enumerate(weights.layers):
        of = {name.removeprefix(f"model.layers.{index}."): tensor for name, tensor in stored.items()}
        for kind, qkv in (("weight", matrix(layer.qkv)), ("bias", layer.qkv_bias)):
            assert torch.equal(qkv, torch.cat([of[f"self_attn.{name}_proj.{kind}"] for name in "qkv"]))
        for kind, gate_up in (("weight", matrix(layer.gate_up)), ("bias", layer.gate_up_bias)):
            assert torch.equal(gate_up, torch.cat([of[f"mlp.{name}_proj.{kind}"] for name in ("gate", "up")]))
        for kind, output, down in (
            ("weight", matrix(layer.output), matrix(layer.down)),
            ("bias", layer.output_bias, layer.down_bias),
        ):
            assert torch.equal(output, of[f"self_attn.o_proj.{kind}"])
            assert torch.equal(down, of[f"mlp.down_proj.{kind}"])
        assert torch.equal(layer.input_norm, of["input_layernorm.weight"])
        assert torch.equal(layer.mlp_norm, of["post_attention_layernorm.weight"])


def test_heads_that_are_normed_have_their_norms(load: Load, make_model: MakeModel, tmp_path: Path) -> None:
    folder = make_model(tmp_path, **QWEN3)
    stored, layer = load_file(folder / "model.safetensors"), load(folder).layers[1]
    assert torch.equal(layer.q_norm, stored["model.layers.1.self_attn.q_norm.weight"])
    assert torch.equal(layer.k_norm, stored["model.layers.1.self_attn.k_norm.weight"])


def test_a_tied_head_is_the_embedding_itself(load: Load, tiny_model: Path) -> None:
    weights = load(tiny_model)
    assert matrix(weights.head).data_ptr() == matrix(weights.embedding).data_ptr()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.usefixtures("small_pieces")
def test_what_the_ranks_hold_is_the_whole(tied: bool, load: Load, make_model: MakeModel, tmp_path: Path) -> None:
    """300 tokens and 3 ranks, then 2 ranks with 301: the head of the last one is filled up."""
    for ranks, vocabulary, shape in ((3, 300, THREE), (2, 301, {})):
        folder = make_model(tmp_path / str(ranks), **BIASES, **shape, tie_word_embeddings=tied, vocab_size=vocabulary)
        whole = load(folder)
        parts = [load(folder, rank=rank, ranks=ranks) for rank in range(ranks)]
        assert all(torch.equal(matrix(part.embedding), matrix(whole.embedding)) for part in parts)
        head = torch.cat([matrix(part.head) for part in parts])
        assert len({len(matrix(part.head)) for part in parts}) == 1
        assert torch.equal(head[:vocabulary], matrix(whole.head))
        assert not head[vocabulary:].any()
        for index, layer in enumerate(whole.layers):
            own = [part.layers[index] for part in parts]
            assert torch.equal(torch.cat([matrix(part.output) for part in own], 1), matrix(layer.output))
            assert torch.equal(torch.cat([matrix(part.down) for part in own], 1), matrix(layer.down))
            for stacked in ("qkv", "gate_up"):
                together = unstacked([matrix(getattr(part, stacked)) for part in own], stacked, folder)
                assert torch.equal(together, matrix(getattr(layer, stacked)))
            for bias in ("output_bias", "down_bias"):
                assert torch.equal(getattr(own[0], bias), getattr(layer, bias))
                assert all(getattr(part, bias) is None for part in own[1:])


def unstacked(parts: list[torch.Tensor], name: str, folder: Path) -> torch.Tensor:
    """The stack of the whole, from the stacks of the ranks."""
    config = read_config(folder)
    extents = [config.heads, config.kv_heads, config.kv_heads] if name == "qkv" else [1, 1]
    split = [part.split([len(part) * extent // sum(extents) for extent in extents]) for part in parts]
    return torch.cat([torch.cat(of_all) for of_all in zip(*split, strict=True)])


def test_parts_of_rows_longer_than_a_page_are_read_alone(load: Load, make_model: MakeModel, tmp_path: Path) -> None:
    folder = make_model(tmp_path, intermediate_size=4096, num_hidden_layers=1)
    total: list[int] = []
    whole, part = load(folder), load(folder, rank=1, ranks=2, count=lambda done, all_, unit: total.append(done))
    assert torch.equal(matrix(part.layers[0].down), matrix(whole.layers[0].down)[:, 2048:])
    assert total[-1] < (folder / "model.safetensors").stat().st_size * 0.7


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.usefixtures("small_pieces")
def test_numbers_are_converted_on_the_way(
    stored: torch.dtype, wanted: torch.dtype, load: Load, make_model: MakeModel, tmp_path: Path
) -> None:
    path = make_model(tmp_path) / "model.safetensors"
    tensors = {name: tensor.to(stored) for name, tensor in load_file(path).items()}
    save_file(tensors, path)
    weights = load(tmp_path, wanted, rank=1, ranks=2)
    assert weights.dtype == wanted
    assert all(tensor.dtype == wanted for _, tensor in tensors_of(weights))
    down = tensors["model.layers.1.mlp.down_proj.weight"].to(wanted)
    assert torch.equal(matrix(weights.layers[1].down), down[:, 48:])
    assert torch.equal(matrix(weights.embedding), tensors["model.embed_tokens.weight"].to(wanted))


@pytest.mark.usefixtures("small_pieces")
def test_several_threads_read_what_one_reads(load: Load, make_model: MakeModel, tmp_path: Path) -> None:
    folder = make_model(tmp_path, **BIASES)
    assert same(load(folder, threads=1), load(folder, threads=7))


def test_shards_make_the_same_model(load: Load, make_model: MakeModel, tmp_path: Path) -> None:
    whole = make_model(tmp_path / "whole")
    sharded = make_model(tmp_path / "sharded")
    tensors = load_file(sharded / "model.safetensors")
    (sharded / "model.safetensors").unlink()
    names = {name: f"model-{place % 3}.safetensors" for place, name in enumerate(sorted(tensors))}
    for file in set(names.values()):
        save_file({name: tensors[name] for name in names if names[name] == file}, sharded / file)
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert same(load(whole), load(sharded))


@pytest.mark.parametrize("options", [{}, {"rank": 1, "ranks": 2}, {"threads": 3}])
@pytest.mark.usefixtures("small_pieces")
def test_progress_starts_at_nothing_ends_at_all_and_is_told_by_the_caller(
    options: dict[str, Any], load: Load, tiny_model: Path
) -> None:
    told: list[tuple[int, int, str]] = []
    threads: set[int] = set()

    def count(done: int, total: int, unit: str) -> None:
        told.append((done, total, unit))
        threads.add(threading.get_ident())

    load(tiny_model, count=count, **options)
    done = [step[0] for step in told]
    assert done[0] == 0
    assert done == sorted(done)
    assert {step[1:] for step in told} == {(done[-1], "bytes")}
    assert len(told) > 50
    assert threads == {threading.get_ident()}


def test_one_rank_reads_every_byte_of_the_tensors(load: Load, tiny_model: Path) -> None:
    told: list[int] = []
    load(tiny_model, count=lambda done, total, unit: told.append(total))
    checkpoint = open_checkpoint(tiny_model, read_config(tiny_model))
    assert told[0] == sum(tensor.bytes for tensor in checkpoint.values())


@pytest.mark.parametrize(
    ("shape", "ranks", "said"),
    [({}, 4, "2 key-value heads"), (THREE | {"intermediate_size": 98}, 3, "98 columns inside the MLP")],
)
def test_a_model_that_cannot_be_dealt_out_is_refused_with_its_numbers(
    shape: dict[str, Any], ranks: int, said: str, make_model: MakeModel, tmp_path: Path
) -> None:
    with pytest.raises(WrongUsage, match=f"{said} cannot be shared by {ranks} ranks"):
        check_share(read_config(make_model(tmp_path, **shape)), ranks)


# --- files that fail while they are read ----------------------------------------------------------------------------


@pytest.mark.usefixtures("small_pieces")
def test_a_file_that_shrinks_while_it_is_read_is_named(make_model: MakeModel, tmp_path: Path) -> None:
    path = make_model(tmp_path) / "model.safetensors"
    config = read_config(tmp_path)
    checkpoint = open_checkpoint(tmp_path, config)

    def count(done: int, total: int, unit: str) -> None:
        if done == 0:
            os.truncate(path, 5000)

    with pytest.raises(ModelNotUsable, match=rf"{path} was cut short at byte \d+ while it was read"):
        load_weights(config, checkpoint, torch.float32, count=count)


def test_a_file_that_goes_away_is_named(make_model: MakeModel, tmp_path: Path) -> None:
    config = read_config(make_model(tmp_path))
    checkpoint = open_checkpoint(tmp_path, config)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelNotUsable, match=r"model\.safetensors cannot be opened: No such file"):
        load_weights(config, checkpoint, torch.float32, count=lambda done, total, unit: None)


def test_a_disk_that_answers_with_an_error_is_named(
    load: Load, monkeypatch: pytest.MonkeyPatch, tiny_model: Path
) -> None:
    def broken(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(ModelNotUsable, match=r"model\.safetensors cannot be read: Input/output error"):
        load(tiny_model)


def test_a_disk_that_never_answers_is_named_after_a_while(
    load: Load, monkeypatch: pytest.MonkeyPatch, tiny_model: Path
) -> None:
    answer = threading.Event()

    def dead(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        assert answer.wait(60)
        return 0

    monkeypatch.setattr(os, "preadv", dead)
    monkeypatch.setattr(reading, "PATIENCE_S", 0.2)
    with pytest.raises(WaitTimedOut, match=r"waited 0.2 s for .*model\.safetensors"):
        load(tiny_model)
    answer.set()


def test_a_disk_that_gives_little_at_a_time_is_only_slow(
    load: Load, monkeypatch: pytest.MonkeyPatch, make_model: MakeModel, tmp_path: Path
) -> None:
    folder = make_model(tmp_path, num_hidden_layers=1, vocab_size=261)
    expected, whole = load(folder), os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, buffers, start: whole(file, [buffers[0][:777]], start))
    assert same(load(folder), expected)


def test_no_file_stays_open(load: Load, tiny_model: Path) -> None:
    load(tiny_model, threads=3)
    opened = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
    assert not [path for path in opened if path.endswith(".safetensors")]


PEAK = """
import resource, sys, torch
from pathlib import Path
from firstlight.embedded.model.checkpoint import open_checkpoint
from firstlight.embedded.model.config import read_config
from firstlight.embedded.model.weights import load_weights
folder = Path(sys.argv[1])
config = read_config(folder)
torch.zeros(1).sum()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
weights = load_weights(config, open_checkpoint(folder, config), torch.bfloat16, count=lambda *told: None, threads=4)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_weights_are_never_in_memory_twice(make_model: MakeModel, tmp_path: Path) -> None:
    """128 MB of bfloat16, read by four threads: what a process of its own takes at its most, above its start."""
    path = make_model(tmp_path) / "model.safetensors"
    large = {"model.embed_tokens.weight": torch.ones(2**20, 64, dtype=torch.bfloat16)}
    save_file(load_file(path) | large, path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 2**20}))
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout) < path.stat().st_size + 40_000_000
