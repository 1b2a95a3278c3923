"""The architectures that the engine serves, and what each of them leaves unsaid in config.json.

Sources: the configuration and modelling files of transformers 5.24 (llama, mistral, qwen2, qwen3). A key that is
absent has the default of its class there, which is not the same for every family.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Family:
    """What the architecture settles; `defaults` are the values of keys that config.json leaves out."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    qkv_bias: bool = False
    """Whether q, k and v always have a bias."""
    optional_attention_bias: bool = False
    """Whether `attention_bias` gives q, k, v and o a bias."""
    optional_mlp_bias: bool = False
    head_norms: bool = False
    windows: Literal["none", "all layers", "upper layers"] = "none"


_QWEN = {"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28, "max_position_embeddings": 32768}

FAMILIES: Mapping[str, Family] = {
    "LlamaForCausalLM": Family(optional_attention_bias=True, optional_mlp_bias=True),
    "MistralForCausalLM": Family(
        defaults={"num_key_value_heads": 8, "sliding_window": 4096, "max_position_embeddings": 131072},
        windows="all layers",
    ),
    "Qwen2ForCausalLM": Family(defaults=_QWEN, qkv_bias=True, windows="upper layers"),
    "Qwen3ForCausalLM": Family(
        defaults={**_QWEN, "head_dim": 128}, optional_attention_bias=True, head_norms=True, windows="upper layers"
    ),
}
