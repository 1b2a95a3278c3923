"""How the weights of a folder are quantised, as `quantization_config` in config.json says it.

Two methods are known. `compressed-tensors` (format `pack-quantized`, weights of 4 bits in groups) is what
llm-compressor writes; sources: quant_config.py and quant_args.py of compressed-tensors 0.17. `gguf-blocks` is our
own, for the blocks of a GGUF file kept as they are; see demo/gguf_blocks.py.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from firstlight.embedded.errors import ModelNotUsable

GROUPS = (32, 64, 128)
OTHER_SERVERS = "Serve it with SGLang or vLLM and watch that: firstlight up -- vllm serve MODEL"


@dataclass(frozen=True)
class Quantization:
    """What is quantised and how: each group of `group` columns of a row shares a scale, and maybe a zero point."""

    method: Literal["compressed-tensors", "gguf-blocks"]
    group: int
    symmetric: bool
    """Whether the zero point is the same for all groups, and so not stored."""
    ignored: tuple[str, ...] = ()
    """Modules left as they were: names, or regular expressions after `re:`."""

    def bits(self, module: str) -> int:
        """Bits of a weight of `module` (as `model.layers.0.mlp.up_proj`); 0 if it is not quantised."""
        if self.method == "gguf-blocks":
            return 8 if module in {"model.embed_tokens", "lm_head"} else 4
        if module == "model.embed_tokens" or any(_matches(module, pattern) for pattern in self.ignored):
            return 0
        return 4


class _Weights(msgspec.Struct):
    num_bits: int = 8
    type: str = "int"
    symmetric: bool = True
    strategy: str | None = None
    group_size: int | None = None
    actorder: str | bool | None = None
    dynamic: bool | str = False


class _Group(msgspec.Struct):
    targets: list[str]
    weights: _Weights | None = None
    input_activations: dict[str, Any] | None = None
    output_activations: dict[str, Any] | None = None
    format: str | None = None


class _CompressedTensors(msgspec.Struct):
    config_groups: dict[str, _Group]
    format: str
    ignore: list[str] | None = None
    kv_cache_scheme: dict[str, Any] | None = None
    sparsity_config: dict[str, Any] | None = None


class _GgufBlocks(msgspec.Struct):
    linear: Literal["Q4_1"]
    embedding: Literal["Q8_0"]
    group_size: Annotated[int, msgspec.Meta(ge=32, le=32)]


def read_quantization(path: Path, raw: dict[str, Any] | None) -> Quantization | None:
    """What `quantization_config` in the file `path` says; None where nothing is quantised.

    Raises ModelNotUsable, naming the setting that this engine does not know.
    """
    if raw is None:
        return None
    readers: dict[object, Callable[[Path, dict[str, Any]], Quantization]] = {
        "compressed-tensors": _read_compressed_tensors,
        "gguf-blocks": _read_gguf_blocks,
    }
    method = raw.get("quant_method")
    if not isinstance(method, str) or method not in readers:
        raise ModelNotUsable(
            f"{path} sets quantization_config to the method {method!r}; this engine knows compressed-tensors",
            OTHER_SERVERS,
        )
    try:
        return readers[method](path, raw)
    except msgspec.ValidationError as error:
        raise ModelNotUsable(f"{path}: quantization_config is not usable: {error}") from error


def _read_gguf_blocks(path: Path, raw: dict[str, Any]) -> Quantization:
    blocks = msgspec.convert(raw, _GgufBlocks)
    return Quantization("gguf-blocks", blocks.group_size, symmetric=False)


def _read_compressed_tensors(path: Path, raw: dict[str, Any]) -> Quantization:
    file = msgspec.convert(raw, _CompressedTensors)
    if len(file.config_groups) != 1:
        raise _unknown(path, "config_groups", f"{len(file.config_groups)} groups", "one")
    group = next(iter(file.config_groups.values()))
    weights = group.weights or _Weights(num_bits=0)
    settings: tuple[tuple[str, object, tuple[object, ...]], ...] = (
        ("format", group.format or file.format, ("pack-quantized",)),
        ("targets", group.targets, (["Linear"],)),
        ("num_bits", weights.num_bits, (4,)),
        ("type", weights.type.lower(), ("int",)),
        ("strategy", (weights.strategy or "group").lower(), ("group",)),
        ("group_size", weights.group_size, GROUPS),
        ("actorder", weights.actorder, (None, False, "weight", "static")),
        ("dynamic", weights.dynamic, (False,)),
        ("input_activations", group.input_activations, (None,)),
        ("output_activations", group.output_activations, (None,)),
        ("kv_cache_scheme", file.kv_cache_scheme, (None,)),
        ("sparsity_config", (file.sparsity_config or {}).get("format"), (None, "dense")),
    )
    for key, value, known in settings:
        if value not in known:
            raise _unknown(path, key, repr(value), " or ".join(map(str, known)))
    ignored = tuple(file.ignore or ())
    _check_patterns(path, ignored)
    return Quantization("compressed-tensors", weights.group_size or 0, weights.symmetric, ignored)


def _unknown(path: Path, key: str, said: str, known: str) -> ModelNotUsable:
    return ModelNotUsable(f"{path}: {key} in quantization_config is {said}; this engine knows {known}", OTHER_SERVERS)


def _check_patterns(path: Path, patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        if pattern.startswith("re:"):
            try:
                re.compile(pattern[3:])
            except re.error as error:
                raise ModelNotUsable(f"{path}: ignore in quantization_config has {pattern!r}: {error}") from error


def _matches(module: str, pattern: str) -> bool:
    """As compressed-tensors does: an exact name, or a regular expression that fits from the start."""
    return re.match(pattern[3:], module) is not None if pattern.startswith("re:") else pattern == module
