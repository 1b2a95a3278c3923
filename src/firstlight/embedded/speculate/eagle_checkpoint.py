"""The tensors of an EAGLE-3 drafter: a complete list, checked; then the weights that `eagle_layer` computes with.

vLLM leaves a missing tensor uninitialised, and SGLang skips missing and unknown ones, both without a word; so whoever
loads must know the whole list. Names and shapes: the plain layout; `midlayer.` and `layers.0.` mean the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from firstlight.embedded.errors import ModelNotUsable
from firstlight.embedded.model.config import ModelConfig
from firstlight.embedded.model.linear import Dense
from firstlight.embedded.model.safetensors_file import StoredTensor, read_header
from firstlight.embedded.speculate.eagle_config import DraftConfig, read_draft_config

FLOATS = ("BF16", "F16", "F32")
EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"
TO_TARGET, TO_DRAFT = "d2t", "t2d"
OTHER_NAMES = ("layers.0.", "midlayer.")


@dataclass(frozen=True)
class DraftCheckpoint:
    """A drafter's folder, checked against its target; `stored` has the tensors by their plain names."""

    folder: Path
    config: DraftConfig
    stored: dict[str, tuple[str, StoredTensor]]
    """For each plain name the name in the file, and where it lies."""


@dataclass(frozen=True)
class DraftWeights:
    """A drafter in memory: D the target's hidden size, H its own, A the states it reads, W the words it knows."""

    fuse: Dense
    """(H, A * D)"""
    token_norm: Tensor
    state_norm: Tensor
    qkv: Dense
    """Queries, keys and values stacked; reads the token's embedding and then the state: 2 H columns."""
    output: Dense
    mlp_norm: Tensor
    gate_up: Dense
    down: Dense
    norm: Tensor
    head: Dense | None
    """(W, H); None is the target's own."""
    embedding: Dense | None
    """None is the target's own."""
    words: Tensor | None
    """The token of each of the drafter's words (W,); None where they are the same."""


def open_draft(folder: Path, target: ModelConfig) -> DraftCheckpoint:
    """Read the configuration and the header, and compare them with each other and with the target.

    Raises ModelNotUsable, naming the key or the tensor that is wrong.
    """
    config = read_draft_config(folder, target)
    stored: dict[str, tuple[str, StoredTensor]] = {}
    for name, tensor in read_header(folder / "model.safetensors").items():
        plain = name.replace(*OTHER_NAMES) if name.startswith(OTHER_NAMES[0]) else name
        if plain in stored:
            raise ModelNotUsable(f"the drafter in {folder} has tensor {plain} under two names")
        stored[plain] = (name, tensor)
    required, optional = _expected(config)
    _check_names(folder, stored, required, optional)
    for name, (_, tensor) in stored.items():
        shape, dtypes = (required | optional)[name]
        if tensor.dtype not in dtypes:
            raise ModelNotUsable(f"tensor {name} in {folder} is {tensor.dtype}; it must be {' or '.join(dtypes)}")
        if tensor.shape != shape:
            raise ModelNotUsable(
                f"tensor {name} in {folder} has shape {list(tensor.shape)}; its config.json and the model ask for "
                f"{list(shape)}"
            )
    if config.layer.tied and HEAD in stored:
        raise ModelNotUsable(
            f"{folder}/config.json sets tie_word_embeddings, and there is a tensor {HEAD}",
            "Set tie_word_embeddings to false: SGLang would throw the tensor away",
        )
    return DraftCheckpoint(folder, config, stored)


_Form = tuple[tuple[int, ...], tuple[str, ...]]
"""A shape, and the dtypes that are allowed."""


def _expected(config: DraftConfig) -> tuple[dict[str, _Form], dict[str, _Form]]:
    """Tensors that must be there, and tensors that may be."""
    layer = config.layer
    hidden, inner, words = layer.hidden_size, layer.intermediate_size, config.draft_vocab
    queries, keys = layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, len(config.taps) * config.target_hidden),
        "midlayer.input_layernorm.weight": (hidden,),
        "midlayer.hidden_norm.weight": (hidden,),
        "midlayer.self_attn.q_proj.weight": (queries, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": (keys, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": (keys, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": (hidden, queries),
        "midlayer.post_attention_layernorm.weight": (hidden,),
        "midlayer.mlp.gate_proj.weight": (inner, hidden),
        "midlayer.mlp.up_proj.weight": (inner, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, inner),
        "norm.weight": (hidden,),
    }
    required: dict[str, _Form] = {name: (shape, FLOATS) for name, shape in shapes.items()}
    head: dict[str, _Form] = {HEAD: ((words, hidden), FLOATS)}
    maps: dict[str, _Form] = {TO_TARGET: ((words,), ("I64",)), TO_DRAFT: ((layer.vocab_size,), ("BOOL",))}
    embedding: dict[str, _Form] = {EMBEDDING: ((layer.vocab_size, hidden), FLOATS)}
    # What the target has can stand in only where it has the drafter's size.
    same_width = hidden == config.target_hidden
    return (
        required
        | ({} if config.whole_vocabulary and same_width else head)
        | ({} if config.whole_vocabulary else maps)
        | ({} if same_width else embedding),
        head | maps | embedding,
    )


def _check_names(
    folder: Path, stored: Mapping[str, object], required: dict[str, _Form], optional: dict[str, _Form]
) -> None:
    missing = sorted(required.keys() - stored.keys())
    extra = sorted(stored.keys() - required.keys() - optional.keys())
    for names, wrong in ((missing, "lacks"), (extra, "has")):
        if names:
            rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
            known = ", which the plain EAGLE-3 layout does not know" if wrong == "has" else ""
            raise ModelNotUsable(
                f"the drafter in {folder} {wrong} tensor {names[0]}{rest}{known}",
                "Export it again in the plain EAGLE-3 layout",
            )


def load_draft(checkpoint: DraftCheckpoint, dtype: torch.dtype, device: torch.device | None = None) -> DraftWeights:
    """Read the weights. Raises ModelNotUsable if the two vocabulary maps are wrong."""
    with safe_open(checkpoint.folder / "model.safetensors", "pt") as file:
        stored: dict[str, Tensor] = {plain: file.get_tensor(name) for plain, (name, _) in checkpoint.stored.items()}

    def matrix(*names: str) -> Dense:
        return Dense(torch.cat([stored[name] for name in names]).to(device, dtype))

    def vector(name: str) -> Tensor:
        return stored[name].to(device, dtype)

    layer = "midlayer.{}.weight".format
    return DraftWeights(
        fuse=matrix("fc.weight"),
        token_norm=vector(layer("input_layernorm")),
        state_norm=vector(layer("hidden_norm")),
        qkv=matrix(*(layer(f"self_attn.{part}_proj") for part in "qkv")),
        output=matrix(layer("self_attn.o_proj")),
        mlp_norm=vector(layer("post_attention_layernorm")),
        gate_up=matrix(layer("mlp.gate_proj"), layer("mlp.up_proj")),
        down=matrix(layer("mlp.down_proj")),
        norm=vector("norm.weight"),
        head=matrix(HEAD) if HEAD in stored else None,
        embedding=matrix(EMBEDDING) if EMBEDDING in stored else None,
        words=_words(checkpoint, stored, device),
    )


def _words(checkpoint: DraftCheckpoint, stored: dict[str, Tensor], device: torch.device | None) -> Tensor | None:
    """The target's token for each word of the drafter. `d2t` holds the differences, `t2d` which tokens it knows."""
    config = checkpoint.config
    if TO_TARGET not in stored:
        return None
    words: Tensor = torch.arange(config.draft_vocab) + stored[TO_TARGET]
    if int(words.min()) < 0 or int(words.max()) >= config.layer.vocab_size:
        raise ModelNotUsable(
            f"{TO_TARGET} in {checkpoint.folder} leads to token {int(words.max())} of {config.layer.vocab_size}",
            f"{TO_TARGET}[i] is the token minus i; a file with the tokens themselves has to be converted",
        )
    if TO_DRAFT in stored:
        known = torch.zeros(config.layer.vocab_size, dtype=torch.bool)
        known[words] = True
        if not torch.equal(known, stored[TO_DRAFT]):
            raise ModelNotUsable(
                f"{TO_TARGET} and {TO_DRAFT} in {checkpoint.folder} do not name the same tokens",
                f"{TO_TARGET}[i] is the token minus i, {TO_DRAFT}[token] whether the drafter knows it",
            )
    return words if device is None else words.to(device)
