"""The weight files of a model folder: which tensor lies where, checked from the headers alone (no torch yet)."""

from dataclasses import dataclass
from pathlib import Path

import safetensors

from firstlight.embedded.errors import ModelNotUsable
from firstlight.embedded.model.config import ModelConfig, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
KNOWN_DTYPES = {"BF16": 2, "F16": 2, "F32": 4}
COPY_AGAIN = "Copy or download it again"


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies and what it is; `dtype` in the words of safetensors."""

    file: Path
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        size = KNOWN_DTYPES[self.dtype]
        for extent in self.shape:
            size *= extent
        return size


Checkpoint = dict[str, StoredTensor]
"""All tensors that the engine will load, by name."""


def open_checkpoint(folder: Path, config: ModelConfig) -> Checkpoint:
    """Read the headers of all weight files and compare them with what the configuration asks for.

    Raises ModelNotUsable, naming the file or the tensor that is wrong.
    """
    stored: Checkpoint = {}
    for path in _weight_files(folder):
        stored |= _header(path)
    expected = expected_tensors(config)
    _check_names(folder, set(expected), set(stored), config)
    for name, shape in expected.items():
        if stored[name].shape != shape:
            raise ModelNotUsable(
                f"tensor {name} in {stored[name].file} has shape {list(stored[name].shape)}; "
                f"config.json asks for {list(shape)}",
                "The weights and config.json are not of the same model",
            )
    return {name: stored[name] for name in expected}


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the model with its shape, in the names of transformers' LlamaForCausalLM."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    layer = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    tensors: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for index in range(config.layers):
        tensors |= {f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()}
    tensors["model.norm.weight"] = (hidden,)
    if not config.tied:
        tensors["lm_head.weight"] = (config.vocab_size, hidden)
    return tensors


def _weight_files(folder: Path) -> list[Path]:
    """The shards that the index names, or the single file."""
    index = folder / INDEX
    if index.exists():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise ModelNotUsable(f"{index} has no weight_map of tensor names to files", COPY_AGAIN)
        return [folder / name for name in sorted(set(names.values()))]
    return [folder / SINGLE]


def _header(path: Path) -> Checkpoint:
    """Names, shapes and dtypes of one file. safetensors itself checks that the file is as long as it says."""
    if not path.exists():
        raise ModelNotUsable(f"weight file {path} is missing", COPY_AGAIN)
    if not path.is_file():
        # Opening a FIFO or a device could block for ever.
        raise ModelNotUsable(f"weight file {path} is not a regular file", COPY_AGAIN)
    tensors: Checkpoint = {}
    try:
        with safetensors.safe_open(path, "numpy") as file:
            for name in file.keys():  # noqa: SIM118 (not a dict)
                part = file.get_slice(name)
                tensors[name] = StoredTensor(path, tuple(part.get_shape()), str(part.get_dtype()))
    except (OSError, safetensors.SafetensorError) as error:
        raise ModelNotUsable(
            f"weight file {path} ({path.stat().st_size} bytes) is damaged or cut short: {error}", COPY_AGAIN
        ) from error
    for name, tensor in tensors.items():
        if tensor.dtype not in KNOWN_DTYPES:
            raise ModelNotUsable(f"tensor {name} in {path} is {tensor.dtype}; this engine loads BF16, F16 and F32")
    return tensors


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


def _harmless(name: str, config: ModelConfig) -> bool:
    """Tensors that older writers left in files and that say nothing new."""
    return name.endswith(".rotary_emb.inv_freq") or (config.tied and name == "lm_head.weight")


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"tensor {names[0]}{rest}"
