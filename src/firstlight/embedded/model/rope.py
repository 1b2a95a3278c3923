"""How the rotary embedding is stretched, as config.json says it.

Source: modeling_rope_utils.py of transformers 5.24.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from firstlight.embedded.errors import ModelNotUsable

Factor = Annotated[float, msgspec.Meta(gt=0, lt=1e9)]


class LinearScaling(msgspec.Struct, frozen=True):
    """All positions divided by `factor`."""

    factor: Factor


class Llama3Scaling(msgspec.Struct, frozen=True):
    """The `llama3` stretch of the rotary frequencies."""

    factor: Factor
    low_freq_factor: Factor
    high_freq_factor: Factor
    original_max_position_embeddings: Annotated[int, msgspec.Meta(gt=0)]


RopeScaling = LinearScaling | Llama3Scaling
_KINDS: dict[str, type[RopeScaling]] = {"linear": LinearScaling, "llama3": Llama3Scaling}


class _Base(msgspec.Struct):
    rope_theta: Annotated[float, msgspec.Meta(gt=0, lt=1e15)]
    partial_rotary_factor: float = 1.0


def read_rope(path: Path, theta: float, parameters: dict[str, Any]) -> tuple[float, RopeScaling | None]:
    """The base of the rotation and its stretch, from `rope_theta` and `rope_parameters` or `rope_scaling`.

    Raises ModelNotUsable, naming the file `path` and the kind or the key.
    """
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in ("default", *_KINDS):
        raise ModelNotUsable(
            f"{path} sets rope_type to {kind!r}; this engine knows default, {' and '.join(_KINDS)}",
            "Serve it with SGLang or vLLM and watch that: firstlight up -- vllm serve MODEL",
        )
    try:
        base = msgspec.convert({"rope_theta": theta, **parameters}, _Base)
        scaling = msgspec.convert(parameters, _KINDS[kind]) if kind != "default" else None
    except msgspec.ValidationError as error:
        raise ModelNotUsable(f"{path}: the {kind} rope parameters are not usable: {error}") from error
    if base.partial_rotary_factor != 1:
        raise ModelNotUsable(f"{path} sets partial_rotary_factor, which this engine does not implement")
    if isinstance(scaling, Llama3Scaling) and scaling.low_freq_factor >= scaling.high_freq_factor:
        raise ModelNotUsable(f"{path}: low_freq_factor of the llama3 rope parameters is not below high_freq_factor")
    return base.rope_theta, scaling
