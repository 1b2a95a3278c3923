"""The weight files of a model folder: which tensor lies where, checked from the headers alone (no torch yet)."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from firstlight.embedded.errors import ModelNotUsable
from firstlight.embedded.model.config import ModelConfig, read_json
from firstlight.embedded.model.quantization import Quantization
from firstlight.embedded.model.safetensors_file import COPY_AGAIN, StoredTensor, read_header

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOATS = ("BF16", "F16", "F32")

Checkpoint = dict[str, StoredTensor]
"""All tensors that the engine will load, by name."""


@dataclass(frozen=True)
class Expected:
    """What a tensor must be like."""

    shape: tuple[int, ...]
    dtypes: tuple[str, ...] = FLOATS


def open_checkpoint(folder: Path, config: ModelConfig) -> Checkpoint:
    """Read the headers of all weight files and compare them with what the configuration asks for.

    Raises ModelNotUsable, naming the file or the tensor that is wrong.
    """
    stored: Checkpoint = {}
    for path in _weight_files(folder):
        tensors = read_header(path)
        for name in sorted(tensors.keys() & stored.keys()):
            raise ModelNotUsable(f"tensor {name} is both in {stored[name].file} and in {path}", COPY_AGAIN)
        stored |= tensors
    expected = expected_tensors(config)
    _check_names(folder, set(expected), set(stored), config)
    for name, wanted in expected.items():
        _check_form(name, stored[name], wanted)
    return {name: stored[name] for name in expected}


def expected_tensors(config: ModelConfig) -> dict[str, Expected]:
    """Every tensor of the model, in the names of transformers; quantised ones in those of compressed-tensors."""
    hidden = config.hidden_size
    tensors = _matrix(config, "model.embed_tokens", config.vocab_size, hidden)
    for index in range(config.layers):
        tensors |= _layer(config, f"model.layers.{index}")
    tensors["model.norm.weight"] = Expected((hidden,))
    if not config.tied:
        tensors |= _matrix(config, "lm_head", config.vocab_size, hidden)
    return tensors


def _layer(config: ModelConfig, prefix: str) -> dict[str, Expected]:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    matrices = {
        "self_attn.q_proj": (queries, hidden, config.qkv_bias),
        "self_attn.k_proj": (keys, hidden, config.qkv_bias),
        "self_attn.v_proj": (keys, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, queries, config.output_bias),
        "mlp.gate_proj": (inner, hidden, config.mlp_bias),
        "mlp.up_proj": (inner, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, inner, config.mlp_bias),
    }
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if config.head_norms:
        norms |= {"self_attn.q_norm": config.head_dim, "self_attn.k_norm": config.head_dim}
    tensors = {f"{prefix}.{name}.weight": Expected((width,)) for name, width in norms.items()}
    for name, (rows, columns, bias) in matrices.items():
        tensors |= _matrix(config, f"{prefix}.{name}", rows, columns)
        if bias:
            tensors[f"{prefix}.{name}.bias"] = Expected((rows,))
    return tensors


def _matrix(config: ModelConfig, module: str, rows: int, columns: int) -> dict[str, Expected]:
    bits = config.quantization.bits(module) if config.quantization else 0
    if config.quantization is None or not bits:
        return {f"{module}.weight": Expected((rows, columns))}
    if columns % config.quantization.group:
        raise ModelNotUsable(
            f"{module} has {columns} columns, which groups of {config.quantization.group} do not divide; "
            "this engine does not load such weights"
        )
    return {f"{module}.{part}": form for part, form in _packed(config.quantization, bits, rows, columns).items()}


def _packed(quantization: Quantization, bits: int, rows: int, columns: int) -> dict[str, Expected]:
    """The tensors that stand for a quantised matrix.

    Eight weights of 4 bits are a 32-bit word, the first in its lowest bits. compressed-tensors packs zero points so
    too, along the rows, and says the shape again in `weight_shape`, which is not read.
    """
    groups = columns // quantization.group
    if quantization.method == "gguf-blocks":
        scale = Expected((rows, groups), ("F16",))
        if bits == 8:
            return {"weight_packed": Expected((rows, columns), ("I8",)), "weight_scale": scale}
        packed = Expected((rows, columns // 8), ("I32",))
        return {"weight_packed": packed, "weight_scale": scale, "weight_minimum": scale}
    tensors = {
        "weight_packed": Expected((rows, columns // 8), ("I32",)),
        "weight_scale": Expected((rows, groups)),
        "weight_shape": Expected((2,), ("I64", "I32")),
    }
    if not quantization.symmetric:
        tensors["weight_zero_point"] = Expected((-(-rows // 8), groups), ("I32",))
    return tensors


def _weight_files(folder: Path) -> list[Path]:
    """The shards that the index names, or the single file."""
    index = folder / INDEX
    if not index.exists():
        return [folder / SINGLE]
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ModelNotUsable(f"{index} has no weight_map of tensor names to files", COPY_AGAIN)
    for name in names.values():
        if PurePosixPath(name).name != name:
            raise ModelNotUsable(f"{index} names {name!r}, which is not a file of its own folder", COPY_AGAIN)
    return [folder / name for name in sorted(set(names.values()))]


def _check_names(folder: Path, expected: set[str], stored: set[str], config: ModelConfig) -> None:
    missing = sorted(expected - stored)
    extra = sorted(name for name in stored - expected if not _harmless(name, config))
    if missing:
        raise ModelNotUsable(
            f"the weights in {folder} lack {_some(missing)}", "Some weight files are missing or of another model"
        )
    if extra:
        raise ModelNotUsable(
            f"the weights in {folder} have {_some(extra)}, which config.json does not account for",
            "The weights and config.json are not of the same model",
        )


def _check_form(name: str, stored: StoredTensor, wanted: Expected) -> None:
    if stored.dtype not in wanted.dtypes:
        raise ModelNotUsable(
            f"tensor {name} in {stored.file} is {stored.dtype}; this engine loads it as {' or '.join(wanted.dtypes)}"
        )
    if stored.shape != wanted.shape:
        raise ModelNotUsable(
            f"tensor {name} in {stored.file} has shape {list(stored.shape)}; "
            f"config.json asks for {list(wanted.shape)}",
            "The weights and config.json are not of the same model",
        )


def _harmless(name: str, config: ModelConfig) -> bool:
    """Tensors that older writers left in files and that say nothing new."""
    return name.endswith(".rotary_emb.inv_freq") or (config.tied and name == "lm_head.weight")


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"tensor {names[0]}{rest}"
