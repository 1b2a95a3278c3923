"""What `config.json` says about a model, checked before anything heavy is imported.

The keys are those of the configuration classes in transformers; version 5 writes `rope_parameters` and `dtype` where
older versions wrote `rope_theta`, `rope_scaling` and `torch_dtype`. Both are read. What would silently give wrong
answers is refused by its name.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from firstlight.embedded.errors import ModelNotUsable
from firstlight.embedded.model.families import FAMILIES, Family
from firstlight.embedded.model.patience import within_patience
from firstlight.embedded.model.quantization import Quantization, read_quantization
from firstlight.embedded.model.rope import RopeScaling, read_rope

DTYPES = ("bfloat16", "float16", "float32")
OTHER_SERVERS = "Serve it with SGLang or vLLM and watch that: firstlight up -- vllm serve MODEL"

Positive = Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
LayerCount = Annotated[int, msgspec.Meta(gt=0, le=4096)]


class ConfigFile(msgspec.Struct):
    """The keys of config.json that we read; others do not matter to inference."""

    hidden_size: Positive
    intermediate_size: Positive
    num_hidden_layers: LayerCount
    num_attention_heads: Positive
    vocab_size: Positive
    num_key_value_heads: Positive | None = None
    head_dim: Positive | None = None
    max_position_embeddings: Positive = 2048
    rms_norm_eps: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    rope_interleaved: bool = False
    partial_rotary_factor: float = 1.0
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    use_sliding_window: bool = False
    sliding_window: Positive | None = None
    max_window_layers: Annotated[int, msgspec.Meta(ge=0)] = 0
    layer_types: list[str] | None = None
    hidden_act: str = "silu"
    torch_dtype: str | None = None
    dtype: str | None = None
    quantization_config: dict[str, Any] | None = None
    eos_token_id: int | list[int] | None = None


@dataclass(frozen=True)
class ModelConfig:
    """A decoder of the Llama family in numbers."""

    architecture: str
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
    rope_scaling: RopeScaling | None
    windows: tuple[int, ...]
    """How many positions each layer sees back from a token, the token itself among them; 0 means all."""
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    head_norms: bool
    """Whether queries and keys are normed head by head before they are rotated."""
    tied: bool
    dtype: str
    quantization: Quantization | None
    eos_tokens: tuple[int, ...]


def read_config(folder: Path) -> ModelConfig:
    """Read and check `folder`/config.json. Raises ModelNotUsable, naming the key that is in the way."""
    path = folder / "config.json"
    raw = read_json(path)
    architecture = _architecture(path, raw.get("architectures"))
    family = FAMILIES[architecture]
    try:
        file = msgspec.convert({**family.defaults, **raw}, ConfigFile)
    except msgspec.ValidationError as error:
        raise ModelNotUsable(f"{path} is not usable: {error}", "Compare it with the model's original") from error
    _check_options(path, file)
    theta, scaling = read_rope(path, file.rope_theta, (file.rope_parameters or {}) | (file.rope_scaling or {}))
    return ModelConfig(
        architecture=architecture,
        hidden_size=file.hidden_size,
        intermediate_size=file.intermediate_size,
        layers=file.num_hidden_layers,
        heads=file.num_attention_heads,
        kv_heads=_kv_heads(path, file),
        head_dim=_head_dim(path, file),
        vocab_size=file.vocab_size,
        max_positions=file.max_position_embeddings,
        norm_eps=file.rms_norm_eps,
        rope_theta=theta,
        rope_scaling=scaling,
        windows=_windows(path, file, family),
        qkv_bias=family.qkv_bias or (family.optional_attention_bias and file.attention_bias),
        output_bias=family.optional_attention_bias and file.attention_bias,
        mlp_bias=family.optional_mlp_bias and file.mlp_bias,
        head_norms=family.head_norms,
        tied=file.tie_word_embeddings,
        dtype=_dtype(path, file),
        quantization=read_quantization(path, file.quantization_config),
        eos_tokens=token_ids(file.eos_token_id),
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a model folder. Raises ModelNotUsable if it is missing, unreadable or something else."""
    if path.exists() and not path.is_file():
        # Opening a FIFO or a device could block for ever.
        raise ModelNotUsable(f"{path} cannot be read: it is not a regular file", "Copy or download it again")
    try:
        content = msgspec.json.decode(within_patience(path, path.read_bytes))
    except FileNotFoundError as error:
        raise ModelNotUsable(
            f"{path.parent} has no {path.name}", "Name a Hugging Face model folder with config.json in it"
        ) from error
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise ModelNotUsable(f"{path} cannot be read: {error}", "Copy or download it again") from error
    if not isinstance(content, dict):
        raise ModelNotUsable(f"{path} is not a JSON object", "Copy or download it again")
    return content


def token_ids(value: int | list[int] | None) -> tuple[int, ...]:
    """One id, several, or none, as files write them."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def _architecture(path: Path, architectures: object) -> str:
    names = architectures if isinstance(architectures, list) else []
    for name in names:
        if isinstance(name, str) and name in FAMILIES:
            return name
    said = ", ".join(map(str, names)) or "no architecture"
    raise ModelNotUsable(f"{path} names {said}; this engine serves {', '.join(FAMILIES)}", OTHER_SERVERS)


def _check_options(path: Path, file: ConfigFile) -> None:
    """Refuse what would silently give wrong answers."""
    if file.hidden_act != "silu":
        raise ModelNotUsable(f"{path} sets hidden_act to {file.hidden_act!r}; this engine knows silu", OTHER_SERVERS)
    if file.rope_interleaved:
        raise ModelNotUsable(f"{path} sets rope_interleaved, which this engine does not implement", OTHER_SERVERS)
    if file.partial_rotary_factor != 1:
        raise ModelNotUsable(
            f"{path} sets partial_rotary_factor, which this engine does not implement", OTHER_SERVERS
        )


def _kv_heads(path: Path, file: ConfigFile) -> int:
    heads = file.num_attention_heads
    kv_heads = file.num_key_value_heads or heads
    if heads % kv_heads:
        raise ModelNotUsable(
            f"{path} sets num_key_value_heads so that {heads} heads cannot share {kv_heads} key-value heads"
        )
    return kv_heads


def _head_dim(path: Path, file: ConfigFile) -> int:
    """The size of a head: what the file says, else an equal part of the hidden size. It must have two halves."""
    if file.head_dim is None and file.hidden_size % file.num_attention_heads:
        raise ModelNotUsable(
            f"{path} sets hidden_size to {file.hidden_size}, which {file.num_attention_heads} heads cannot share"
        )
    size = file.head_dim or file.hidden_size // file.num_attention_heads
    if size % 2:
        raise ModelNotUsable(f"{path} gives a head_dim of {size}; it must be even to be rotated")
    return size


def _windows(path: Path, file: ConfigFile, family: Family) -> tuple[int, ...]:
    """The window of each layer. Sources: the configuration classes of transformers 5, by family."""
    layers, window = file.num_hidden_layers, file.sliding_window or 0
    if family.windows == "none":
        return (0,) * layers
    if family.windows == "all layers":
        types = {"sliding_attention" if window else "full_attention"}
        if not set(file.layer_types or types) <= types:
            raise ModelNotUsable(f"{path}: layer_types contradicts sliding_window, which is that of all layers here")
        return (window,) * layers
    return _upper_windows(path, file, window if file.use_sliding_window else 0)


def _upper_windows(path: Path, file: ConfigFile, window: int) -> tuple[int, ...]:
    """Qwen's rule: each layer as `layer_types` says; where it does not, those from max_window_layers on have one."""
    layers = file.num_hidden_layers
    if file.layer_types is None:
        return tuple(window if index >= file.max_window_layers else 0 for index in range(layers))
    sizes = {"full_attention": 0, "sliding_attention": window}
    unknown = sorted(set(file.layer_types) - set(sizes))
    if unknown or len(file.layer_types) != layers:
        said = f"names {unknown[0]!r}" if unknown else f"has {len(file.layer_types)} entries for {layers} layers"
        raise ModelNotUsable(f"{path}: layer_types {said}; known are {', '.join(sizes)}", OTHER_SERVERS)
    if "sliding_attention" in file.layer_types and not window:
        raise ModelNotUsable(f"{path}: layer_types has sliding_attention, and no sliding_window is in use")
    return tuple(sizes[name] for name in file.layer_types)


def _dtype(path: Path, file: ConfigFile) -> str:
    dtype = file.dtype or file.torch_dtype or "float32"
    if dtype not in DTYPES:
        raise ModelNotUsable(f"{path} sets the dtype to {dtype!r}; this engine knows {', '.join(DTYPES)}")
    return dtype
