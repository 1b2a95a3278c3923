"""An EAGLE-3 drafter that knows nothing: random weights in the plain one-layer layout of vLLM and SGLang."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

WORDS = 8192
"""Tokens that it can draft, taken evenly from the target's vocabulary."""
STATES = 3
"""States of the target that it is given: after 2 layers, half of them, and all but 3."""

KEPT = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "rms_norm_eps",
    "rope_theta",
    "hidden_act",
    "max_position_embeddings",
)


def write_random_drafter(folder: Path, target: Path) -> Path:
    """Make `folder`, with config.json and model.safetensors for the Llama-like model in `target`; returns it."""
    folder.mkdir()
    of_target = json.loads((target / "config.json").read_text())
    of_target.setdefault("head_dim", of_target["hidden_size"] // of_target["num_attention_heads"])
    words = min(WORDS, of_target["vocab_size"])
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": words,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **{key: of_target[key] for key in KEPT if key in of_target},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(_tensors(config, words), folder / "model.safetensors")
    return folder


def _tensors(config: dict[str, int], words: int) -> dict[str, torch.Tensor]:
    vocabulary = config["vocab_size"]
    chosen = torch.arange(words) * (vocabulary // words)
    known = torch.zeros(vocabulary, dtype=torch.bool)
    known[chosen] = True
    random = torch.Generator().manual_seed(0)
    matrices = {
        name: (0.02 * torch.randn(shape, generator=random)).to(torch.bfloat16)
        for name, shape in _matrices(config, words).items()
    }
    norms = ("midlayer.input_layernorm", "midlayer.hidden_norm", "midlayer.post_attention_layernorm", "norm")
    ones = {f"{name}.weight": torch.ones(config["hidden_size"], dtype=torch.bfloat16) for name in norms}
    return matrices | ones | {"d2t": chosen - torch.arange(words), "t2d": known}


def _matrices(config: dict[str, int], words: int) -> dict[str, tuple[int, int]]:
    """Shapes, outputs first. Attention reads the token's embedding and the state, one beside the other."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    return {
        "fc.weight": (hidden, STATES * hidden),
        "midlayer.self_attn.q_proj.weight": (queries, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": (keys, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": (keys, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": (hidden, queries),
        "midlayer.mlp.gate_proj.weight": (inner, hidden),
        "midlayer.mlp.up_proj.weight": (inner, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, inner),
        "lm_head.weight": (words, hidden),
    }
