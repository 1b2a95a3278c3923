"""Random drafters for any target, in the plain EAGLE-3 layout."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

LAYER = {
    "input_layernorm": "H",
    "hidden_norm": "H",
    "self_attn.q_proj": "Q 2H",
    "self_attn.k_proj": "K 2H",
    "self_attn.v_proj": "K 2H",
    "self_attn.o_proj": "H Q",
    "post_attention_layernorm": "H",
    "mlp.gate_proj": "I H",
    "mlp.up_proj": "I H",
    "mlp.down_proj": "H I",
}


def write_drafter(
    folder: Path,
    target: dict[str, Any],
    *,
    words: int | None = 96,
    states: tuple[int, ...] = (),
    prefix: str = "midlayer.",
    change: Callable[[dict[str, torch.Tensor]], None] = lambda tensors: None,
    **changes: Any,
) -> Path:
    """A drafter with random weights for a model with the config.json `target`.

    `words` is its vocabulary (None: the target's), `states` those of the target that it reads (none: the default
    ones). `change` and `changes` alter tensors and configuration before they are written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        key: target[key]
        for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size")
    }
    config |= {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": words}
    config |= {"rms_norm_eps": target["rms_norm_eps"], "rope_theta": target["rope_theta"], "torch_dtype": "float32"}
    if states:
        config["eagle_aux_hidden_state_layer_ids"] = list(states)
    config |= changes
    (folder / "config.json").write_text(json.dumps(config))
    tensors = random_tensors(config, len(states) or 3, prefix)
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


def random_tensors(config: dict[str, Any], states: int, prefix: str) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(13)
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    sizes = {"H": hidden, "2H": 2 * hidden, "I": config["intermediate_size"]}
    sizes |= {"Q": head * config["num_attention_heads"], "K": head * config["num_key_value_heads"]}

    def weight(*shape: int) -> torch.Tensor:
        if len(shape) == 1:
            return 1 + 0.2 * torch.randn(shape, generator=random)
        return torch.randn(shape, generator=random) / shape[1] ** 0.5

    tensors = {"fc.weight": weight(hidden, states * hidden), "norm.weight": weight(hidden)}
    for name, shape in LAYER.items():
        tensors[f"{prefix}{name}.weight"] = weight(*(sizes[size] for size in shape.split()))
    words = config["draft_vocab_size"]
    tensors["lm_head.weight"] = weight(words or vocabulary, hidden)
    if words is not None:
        known = torch.randperm(vocabulary, generator=random)[:words].sort().values
        tensors["d2t"] = known - torch.arange(words)
        tensors["t2d"] = torch.zeros(vocabulary, dtype=torch.bool).scatter(0, known, True)
    return tensors
