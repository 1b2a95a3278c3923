"""The matrices of a loaded model beside the names of what is stacked in each."""

from collections.abc import Iterator

from firstlight.embedded.model.linear import Weight
from firstlight.embedded.model.weights import DecoderWeights


def matrices(weights: DecoderWeights) -> Iterator[tuple[Weight, list[str]]]:
    for index, layer in enumerate(weights.layers):
        attention, mlp = f"model.layers.{index}.self_attn", f"model.layers.{index}.mlp"
        yield layer.qkv, [f"{attention}.{name}_proj" for name in "qkv"]
        yield layer.output, [f"{attention}.o_proj"]
        yield layer.gate_up, [f"{mlp}.gate_proj", f"{mlp}.up_proj"]
        yield layer.down, [f"{mlp}.down_proj"]
