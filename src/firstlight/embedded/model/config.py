"""What `config.json` says about a model, checked before anything heavy is imported.

The keys are those of `LlamaConfig` in transformers; version 5 writes `rope_parameters` and `dtype` where older
versions wrote `rope_theta`, `rope_scaling` and `torch_dtype`. Both are read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from firstlight.embedded.errors import ModelNotUsable

ARCHITECTURES = ("LlamaForCausalLM",)
DTYPES = ("bfloat16", "float16", "float32")
OTHER_SERVERS = "Serve it with SGLang or vLLM and watch that: firstlight up -- vllm serve MODEL"

Positive = Annotated[int, msgspec.Meta(gt=0)]


class Llama3Scaling(msgspec.Struct, frozen=True):
    """The `llama3` stretch of the rotary frequencies."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: Positive


class _File(msgspec.Struct):
    """The keys of config.json that we read; others do not matter to inference."""

    hidden_size: Positive
    intermediate_size: Positive
    num_hidden_layers: Positive
    num_attention_heads: Positive
    vocab_size: Positive
    num_key_value_heads: Positive | None = None
    head_dim: Positive | None = None
    max_position_embeddings: Positive = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    hidden_act: str = "silu"
    torch_dtype: str | None = None
    dtype: str | None = None
    quantization_config: dict[str, Any] | None = None
    eos_token_id: int | list[int] | None = None


@dataclass(frozen=True)
class ModelConfig:
    """A Llama-family decoder in numbers."""

    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    norm_eps: float
    rope_theta: float
    rope_scaling: Llama3Scaling | None
    tied: bool
    dtype: str
    eos_tokens: tuple[int, ...]


def read_config(folder: Path) -> ModelConfig:
    """Read and check `folder`/config.json. Raises ModelNotUsable, naming the key that is in the way."""
    path = folder / "config.json"
    raw = read_json(path)
    _check_architecture(path, raw.get("architectures"))
    try:
        file = msgspec.convert(raw, _File)
    except msgspec.ValidationError as error:
        raise ModelNotUsable(f"{path} is not usable: {error}", "Compare it with the model's original") from error
    _check_options(path, file)
    kv_heads = file.num_key_value_heads or file.num_attention_heads
    if file.num_attention_heads % kv_heads:
        raise ModelNotUsable(f"{path}: {file.num_attention_heads} heads cannot share {kv_heads} key-value heads")
    rope = (file.rope_parameters or {}) | (file.rope_scaling or {})
    return ModelConfig(
        hidden_size=file.hidden_size,
        intermediate_size=file.intermediate_size,
        layers=file.num_hidden_layers,
        heads=file.num_attention_heads,
        kv_heads=kv_heads,
        head_dim=file.head_dim or file.hidden_size // file.num_attention_heads,
        vocab_size=file.vocab_size,
        max_positions=file.max_position_embeddings,
        norm_eps=file.rms_norm_eps,
        rope_theta=float(rope.get("rope_theta", file.rope_theta)),
        rope_scaling=_rope_scaling(path, rope),
        tied=file.tie_word_embeddings,
        dtype=file.dtype or file.torch_dtype or "float32",
        eos_tokens=token_ids(file.eos_token_id),
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a model folder. Raises ModelNotUsable if it is missing, unreadable or something else."""
    try:
        content = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError as error:
        raise ModelNotUsable(
            f"{path.parent} has no {path.name}", "Name a Hugging Face model folder with config.json in it"
        ) from error
    except (OSError, msgspec.DecodeError) as error:
        raise ModelNotUsable(f"{path} cannot be read: {error}", "Copy or download it again") from error
    if not isinstance(content, dict):
        raise ModelNotUsable(f"{path} is not a JSON object", "Copy or download it again")
    return content


def token_ids(value: int | list[int] | None) -> tuple[int, ...]:
    """One id, several, or none, as files write them."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def _check_architecture(path: Path, architectures: object) -> None:
    names = architectures if isinstance(architectures, list) else []
    if not any(name in ARCHITECTURES for name in names):
        said = ", ".join(map(str, names)) or "no architecture"
        raise ModelNotUsable(f"{path} names {said}; this engine serves {', '.join(ARCHITECTURES)}", OTHER_SERVERS)


def _check_options(path: Path, file: _File) -> None:
    """Refuse what would silently give wrong answers."""
    refused = {
        "attention_bias": file.attention_bias,
        "mlp_bias": file.mlp_bias,
        "quantization_config": file.quantization_config,
    }
    for key, value in refused.items():
        if value:
            raise ModelNotUsable(f"{path} sets {key}, which this engine does not implement", OTHER_SERVERS)
    if file.hidden_act != "silu":
        raise ModelNotUsable(f"{path} sets hidden_act to {file.hidden_act!r}; this engine knows silu", OTHER_SERVERS)
    dtype = file.dtype or file.torch_dtype or "float32"
    if dtype not in DTYPES:
        raise ModelNotUsable(f"{path} sets the dtype to {dtype!r}; this engine knows {', '.join(DTYPES)}")


def _rope_scaling(path: Path, rope: dict[str, Any]) -> Llama3Scaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ModelNotUsable(
            f"{path} sets rope_type to {kind!r}; this engine knows default and llama3", OTHER_SERVERS
        )
    try:
        return msgspec.convert(rope, Llama3Scaling)
    except msgspec.ValidationError as error:
        raise ModelNotUsable(f"{path}: the llama3 rope parameters are not usable: {error}") from error
