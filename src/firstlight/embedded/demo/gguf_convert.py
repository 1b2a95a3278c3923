"""Turns a GGUF file of a Llama-family model into a standard Hugging Face folder, without torch.

GGUF keeps three things differently, and each is undone here:

- tensors have names of their own (`blk.0.attn_q.weight`) and may be quantised;
- the rows of q and k are reordered, because llama.cpp rotates neighbouring pairs (0,1), (2,3) … where the Hugging
  Face layout rotates the two halves of a head (see `rows_as_halves`);
- the tokenizer is a list of tokens, types and merges; how text is cut before the merges is only a name (`pre`).

What is not known to be converted rightly is refused with a ConversionError: a wrong model that loads is worse than
none. Sources: the GGUF specification (version 3), the readers of the `gguf` package (0.16 and later).
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize

from firstlight.embedded.demo import gguf_blocks
from firstlight.embedded.demo.safetensors_write import Entry, Progress, write_safetensors
from firstlight.embedded.errors import EngineError

_TENSOR_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_PRE_TOKENIZERS: dict[str, Any] = {
    "smollm": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
    },
    "gpt-2": _BYTE_LEVEL,
}
_NORMAL_TOKEN, _CONTROL_TOKEN = 1, 3


class ConversionError(EngineError):
    """The GGUF file is of a kind that is not converted here; the sentence says which part."""


@dataclass(frozen=True)
class _Source:
    """An open GGUF file: its metadata by key, and its tensors by Hugging Face name."""

    fields: Mapping[str, Any]
    tensors: Mapping[str, gguf.ReaderTensor]

    def value(self, key: str) -> Any:
        if key not in self.fields:
            raise ConversionError(f"the GGUF file does not say {key}")
        return self.fields[key].contents()

    def optional(self, key: str) -> Any:
        return self.fields[key].contents() if key in self.fields else None


def convert(path: Path, folder: Path, progress: Progress = lambda done, total: None, *, blocks: bool = False) -> None:
    """Write config.json, model.safetensors, tokenizer.json and their small companions into an existing folder.

    Weights become bfloat16; with `blocks` those that are quantised stay as they are (see gguf_blocks).
    Raises ConversionError for a file of another kind, OSError when reading or writing fails. Every file is flushed to
    the disk; that the folder is complete is for the caller to mark.
    """
    source = _open(path)
    config = model_config(source) | ({"quantization_config": gguf_blocks.QUANTIZATION} if blocks else {})
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", _generation_config(config))
    _write_json(folder / "tokenizer.json", tokenizer(source))
    _write_json(folder / "tokenizer_config.json", tokenizer_config(source))
    entries: list[Entry] = []
    for name, tensor in source.tensors.items():
        entries += _as_they_are(tensor, name, config) if blocks else [_plain(tensor, name, config)]
    write_safetensors(folder / "model.safetensors", entries, progress)


def _open(path: Path) -> _Source:
    try:
        reader = gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError) as error:  # what the reader raises on a truncated or foreign file
        raise ConversionError(f"{path} is not a readable GGUF file: {error}") from error
    return _Source(reader.fields, {hugging_face_name(tensor.name): tensor for tensor in reader.tensors})


def hugging_face_name(name: str) -> str:
    """`blk.7.attn_q.weight` -> `model.layers.7.self_attn.q_proj.weight`."""
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", name)
    if match is None or match[2] not in _TENSOR_NAMES:
        raise ConversionError(f"the tensor {name} has no place in a Llama model")
    layer = f"model.layers.{match[1]}." if match[1] is not None else ""
    return f"{layer}{_TENSOR_NAMES[match[2]]}.weight"


# --- configuration --------------------------------------------------------------------------------------------------


def model_config(source: _Source) -> dict[str, Any]:
    architecture = source.value("general.architecture")
    if architecture != "llama":
        raise ConversionError(f"the architecture is {architecture}; only llama is converted")
    if source.optional("llama.rope.scaling.type") not in (None, "none"):
        raise ConversionError("the rotary embedding is scaled; that is not converted")
    heads = source.value("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "hidden_size": source.value("llama.embedding_length"),
        "intermediate_size": source.value("llama.feed_forward_length"),
        "num_hidden_layers": source.value("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": source.optional("llama.attention.head_count_kv") or heads,
        "head_dim": source.value("llama.rope.dimension_count"),
        "max_position_embeddings": source.value("llama.context_length"),
        "rms_norm_eps": _shortest(source.value("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest(source.value("llama.rope.freq_base")),
        "tie_word_embeddings": "lm_head.weight" not in source.tensors,
        "vocab_size": len(source.value("tokenizer.ggml.tokens")),
        "torch_dtype": "bfloat16",
        "bos_token_id": source.value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": source.value("tokenizer.ggml.eos_token_id"),
        "pad_token_id": source.optional("tokenizer.ggml.padding_token_id"),
    }


def _shortest(single: float) -> float:
    """The number somebody wrote before it became 32 bits wide: 9.999999747378752e-06 -> 1e-05."""
    return float(str(np.float32(single)))


def _generation_config(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}


# --- tokenizer ------------------------------------------------------------------------------------------------------


def tokenizer(source: _Source) -> dict[str, Any]:
    """The content of tokenizer.json: byte-level BPE, as the `tokenizers` library reads it."""
    model, pre = source.value("tokenizer.ggml.model"), source.value("tokenizer.ggml.pre")
    if model != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise ConversionError(f"the tokenizer is {model}/{pre}; known are gpt2/{', gpt2/'.join(_PRE_TOKENIZERS)}")
    tokens = source.value("tokenizer.ggml.tokens")
    types = source.value("tokenizer.ggml.token_type")
    odd = {kind for kind in types if kind not in (_NORMAL_TOKEN, _CONTROL_TOKEN)}
    if odd:
        raise ConversionError(f"the tokenizer has tokens of type {sorted(odd)}, which are not converted")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added_token(index, token)
            for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind == _CONTROL_TOKEN
        ],
        "normalizer": None,
        "pre_tokenizer": _PRE_TOKENIZERS[pre],
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": source.value("tokenizer.ggml.merges"),
        },
    }


def _added_token(index: int, token: str) -> dict[str, Any]:
    unstripped = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": token, **unstripped, "special": True}


def tokenizer_config(source: _Source) -> dict[str, Any]:
    tokens = source.value("tokenizer.ggml.tokens")
    special = {
        "bos_token": source.value("tokenizer.ggml.bos_token_id"),
        "eos_token": source.value("tokenizer.ggml.eos_token_id"),
        "unk_token": source.optional("tokenizer.ggml.unknown_token_id"),
        "pad_token": source.optional("tokenizer.ggml.padding_token_id"),
    }
    return {
        # Not GPT2Tokenizer: that class brings a way of its own to cut text, which leaves numbers whole.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": source.value("llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(source.optional("tokenizer.ggml.add_bos_token")),
        **{name: tokens[index] for name, index in special.items() if index is not None},
        "chat_template": source.optional("tokenizer.chat_template"),
    }


# --- weights --------------------------------------------------------------------------------------------------------


def rows_as_halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Undo llama.cpp's order of the rows of q and k, head by head.

    GGUF has the rows of a head as first₀ second₀ first₁ second₁ … (the two numbers that rotate together are
    neighbours); Hugging Face has first₀ first₁ … second₀ second₁ …
    """
    pairs: np.ndarray = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def as_bfloat16(numbers: np.ndarray) -> np.ndarray:
    """The upper 16 bits of each 32-bit float, rounded to nearest, ties to even. NaN is not expected in weights."""
    bits = np.ascontiguousarray(numbers, dtype="<f4").view("<u4")
    rounded: np.ndarray = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded >> 16).astype("<u2")


def _rows(rows: np.ndarray, name: str, config: Mapping[str, Any]) -> np.ndarray:
    """The rows of a tensor, numbers or blocks of them, in the order of Hugging Face."""
    if name.endswith("q_proj.weight"):
        return rows_as_halves(rows, config["num_attention_heads"])
    if name.endswith("k_proj.weight"):
        return rows_as_halves(rows, config["num_key_value_heads"])
    return rows


def _plain(tensor: gguf.ReaderTensor, name: str, config: Mapping[str, Any]) -> Entry:
    """A tensor as bfloat16, computed when it is written."""

    def make() -> np.ndarray:
        return as_bfloat16(_rows(dequantize(tensor.data, tensor.tensor_type), name, config))

    return Entry(name, "BF16", _shape(tensor), make)


def _as_they_are(tensor: gguf.ReaderTensor, name: str, config: Mapping[str, Any]) -> Iterator[Entry]:
    """A matrix as its blocks, a vector as its 32-bit floats. Raises ConversionError for blocks of other kinds."""
    if len(tensor.shape) > 1:
        try:
            yield from gguf_blocks.entries_of(name, _rows(tensor.data, name, config), tensor.tensor_type)
        except gguf_blocks.BlocksNotKept as error:
            raise ConversionError(str(error)) from error
    else:
        yield Entry(name, "F32", _shape(tensor), lambda: dequantize(tensor.data, tensor.tensor_type))


def _shape(tensor: gguf.ReaderTensor) -> tuple[int, ...]:
    """GGUF names the fastest dimension first."""
    return tuple(int(size) for size in reversed(tensor.shape))


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, indent=1)
        file.flush()
        os.fsync(file.fileno())
