"""What `config.json` of an EAGLE-3 drafter says, and which of it this engine implements.

The plain layout, which SGLang and vLLM load with the same meaning: one Llama layer whose attention reads the next
token's embedding beside the fused states of the target, an un-normed residual, its own vocabulary. Options that
change the function are refused by their names, as are those that the two engines read differently.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from firstlight.embedded.errors import ModelNotUsable
from firstlight.embedded.model.config import ConfigFile, ModelConfig, Positive, read_json
from firstlight.embedded.model.rope import read_rope

ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")
REFUSED = (
    *("norm_before_residual", "norm_before_fc", "fc_norm", "use_aux_norm", "norm_output"),
    *("attention_bias", "mlp_bias", "bias", "use_sliding_window", "rope_interleaved"),
    *("quantization_config", "speculators_model_type"),
)
"""Keys that must be absent, false or null, at the top and in `eagle_config`."""
TRAIN_AGAIN = "Train or export it in the plain EAGLE-3 layout"


class DraftFile(ConfigFile):
    """The keys of a drafter's config.json beyond those of its Llama layer."""

    draft_vocab_size: Positive | None = None
    target_hidden_size: Positive | None = None
    num_aux_hidden_states: Positive | None = None
    eagle_aux_hidden_state_layer_ids: list[int] | None = None
    eagle_config: dict[str, Any] | None = None


class NestedFile(msgspec.Struct):
    """The keys of `eagle_config`."""

    eagle_aux_hidden_state_layer_ids: list[int] | None = None
    use_aux_hidden_state: bool = True


@dataclass(frozen=True)
class DraftConfig:
    """A drafter in numbers, for one target."""

    layer: ModelConfig
    """Its single layer; `vocab_size` is the target's."""
    draft_vocab: int
    """Tokens it can propose."""
    target_hidden: int
    taps: tuple[int, ...]
    """The target's states that it reads, ascending: k is the residual stream after k layers."""

    @property
    def whole_vocabulary(self) -> bool:
        return self.draft_vocab == self.layer.vocab_size


def read_draft_config(folder: Path, target: ModelConfig) -> DraftConfig:
    """Read and check `folder`/config.json. Raises ModelNotUsable, naming the key that is in the way."""
    path = folder / "config.json"
    raw = read_json(path)
    _check_architecture(path, raw.get("architectures"))
    try:
        file = msgspec.convert(raw, DraftFile)
        nested = msgspec.convert(file.eagle_config or {}, NestedFile)
    except msgspec.ValidationError as error:
        raise ModelNotUsable(f"{path} is not usable: {error}", "Compare it with the drafter's original") from error
    _check_options(path, raw, nested)
    _check_layer(path, file)
    _check_target(path, file, target)
    return DraftConfig(
        layer=_layer(path, file),
        draft_vocab=file.draft_vocab_size or file.vocab_size,
        target_hidden=target.hidden_size,
        taps=taps(path, file, nested.eagle_aux_hidden_state_layer_ids, target.layers),
    )


def taps(path: Path, file: DraftFile, nested: list[int] | None, layers: int) -> tuple[int, ...]:
    """The states to read, from lists that mean different things.

    At the top of the file id k is state k (vLLM); in `eagle_config` it is the output of layer k, which is state k + 1
    (SGLang). Both engines read the states in ascending order, and without a list 2, n/2 and n - 3.
    """
    top = file.eagle_aux_hidden_state_layer_ids
    inner = None if nested is None else [layer + 1 for layer in nested]
    if top is not None and inner is not None and sorted(top) != sorted(inner):
        raise ModelNotUsable(
            f"{path} lists states {sorted(top)} at its top, and the layers behind {sorted(inner)} in eagle_config",
            "SGLang reads the one and vLLM the other: both must name the same states",
        )
    named = top if top is not None else inner
    chosen = tuple(sorted(named if named is not None else (2, layers // 2, layers - 3)))
    if len(set(chosen)) < len(chosen) or not chosen or chosen[0] < 0 or chosen[-1] > layers:
        said = "eagle_aux_hidden_state_layer_ids" if named is not None else "no eagle_aux_hidden_state_layer_ids, so"
        raise ModelNotUsable(
            f"{path} has {said} {list(chosen)}, which are not distinct states of a target of {layers} layers",
            "States are numbered from 0, the embedding, to the number of layers; below 7 layers they must be listed",
        )
    if file.num_aux_hidden_states not in {None, len(chosen)}:
        raise ModelNotUsable(
            f"{path} sets num_aux_hidden_states to {file.num_aux_hidden_states}, and names {len(chosen)} states"
        )
    return chosen


def _check_architecture(path: Path, architectures: object) -> None:
    names = architectures if isinstance(architectures, list) else []
    if not any(name in ARCHITECTURES for name in names):
        said = ", ".join(map(str, names)) or "no architecture"
        raise ModelNotUsable(
            f"{path} names {said}; this engine drafts with {' or '.join(ARCHITECTURES)}", TRAIN_AGAIN
        )


def _check_options(path: Path, raw: dict[str, Any], nested: NestedFile) -> None:
    inner = raw.get("eagle_config") or {}
    for key in REFUSED:
        if raw.get(key) or inner.get(key):
            raise ModelNotUsable(f"{path} sets {key}, which this engine does not implement in a drafter", TRAIN_AGAIN)
    if not nested.use_aux_hidden_state:
        raise ModelNotUsable(f"{path} sets use_aux_hidden_state to false, which is EAGLE-1, not EAGLE-3", TRAIN_AGAIN)


def _check_layer(path: Path, file: DraftFile) -> None:
    if file.num_hidden_layers != 1:
        raise ModelNotUsable(
            f"{path} sets num_hidden_layers to {file.num_hidden_layers}; this engine drafts with 1 layer", TRAIN_AGAIN
        )
    if file.sliding_window is not None or set(file.layer_types or ()) - {"full_attention"}:
        raise ModelNotUsable(
            f"{path} sets sliding_window or layer_types; a drafter here attends to everything", TRAIN_AGAIN
        )
    if file.hidden_act != "silu":
        raise ModelNotUsable(f"{path} sets hidden_act to {file.hidden_act!r}; this engine knows silu", TRAIN_AGAIN)
    if file.partial_rotary_factor != 1:
        raise ModelNotUsable(f"{path} sets partial_rotary_factor, which this engine does not implement", TRAIN_AGAIN)


def _check_target(path: Path, file: DraftFile, target: ModelConfig) -> None:
    hidden = file.target_hidden_size or file.hidden_size
    for key, said, real in (
        ("target_hidden_size" if file.target_hidden_size else "hidden_size", hidden, target.hidden_size),
        ("vocab_size", file.vocab_size, target.vocab_size),
    ):
        if said != real:
            raise ModelNotUsable(
                f"{path} sets {key} to {said}; the model's is {real}", "The drafter was made for another model"
            )
    if file.draft_vocab_size is not None and file.draft_vocab_size > file.vocab_size:
        raise ModelNotUsable(f"{path} sets draft_vocab_size above vocab_size")


def _layer(path: Path, file: DraftFile) -> ModelConfig:
    heads = file.num_attention_heads
    kv_heads = file.num_key_value_heads or heads
    head_dim = file.head_dim or file.hidden_size // heads
    if heads % kv_heads or head_dim % 2:
        raise ModelNotUsable(f"{path}: {heads} heads of {head_dim} cannot share {kv_heads} key-value heads")
    theta, scaling = read_rope(path, file.rope_theta, (file.rope_parameters or {}) | (file.rope_scaling or {}))
    return ModelConfig(
        architecture=ARCHITECTURES[0],
        hidden_size=file.hidden_size,
        intermediate_size=file.intermediate_size,
        layers=1,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=file.vocab_size,
        max_positions=file.max_position_embeddings,
        norm_eps=file.rms_norm_eps,
        rope_theta=theta,
        rope_scaling=scaling,
        windows=(0,),
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        head_norms=False,
        tied=file.tie_word_embeddings,
        dtype=file.dtype or file.torch_dtype or "float32",
        quantization=None,
        eos_tokens=(),
    )
