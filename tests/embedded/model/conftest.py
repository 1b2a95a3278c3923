"""Quantised models beside the numbers that they stand for, and loading a folder in one call."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from firstlight.embedded.model.checkpoint import open_checkpoint
from firstlight.embedded.model.config import read_config
from firstlight.embedded.model.weights import DecoderWeights, load_weights

Load = Callable[..., DecoderWeights]


def load_folder(folder: Path, dtype: torch.dtype = torch.float32, **options: Any) -> DecoderWeights:
    config = read_config(folder)
    checkpoint = open_checkpoint(folder, config)
    return load_weights(config, checkpoint, dtype, **{"count": lambda done, total, unit: None, **options})


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads that wait for each other on busy cores take many times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def load() -> Load:
    return load_folder


@pytest.fixture(scope="session")
def make_quantised(make_model: Callable[..., Path]) -> Callable[..., None]:
    def write(
        folder: Path,
        plain: Path,
        group: int,
        symmetric: bool | None,
        *,
        ignored: Sequence[str] = ("lm_head",),
        **changes: Any,
    ) -> None:
        """A model of 4-bit weights, and in `plain` the model of the numbers that they stand for, in float32.

        The format is `pack-quantized` of compressed-tensors, or GGUF blocks where `symmetric` is None.
        """
        weights = {"num_bits": 4, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": group}
        quantization = {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
            "ignore": ignored,
        }
        if symmetric is None:
            quantization = {"quant_method": "gguf-blocks", "linear": "Q4_1", "embedding": "Q8_0", "group_size": group}
        make_model(folder, quantization_config=quantization, **changes)
        tensors = load_file(folder / "model.safetensors")
        numbers = {name: tensor for name, tensor in tensors.items() if ".weight_" not in name}
        for name in tensors:
            if name.endswith("weight_packed"):
                module = name.removesuffix("_packed")
                parts = {
                    part.removeprefix(f"{module}_"): tensors[part] for part in tensors if part.startswith(module)
                }
                numbers[module] = numbers_of(parts)
        make_model(plain, **changes)
        save_file(numbers, plain / "model.safetensors")

    return write


def numbers_of(parts: dict[str, np.ndarray]) -> np.ndarray:
    """What a quantised matrix stands for, from the definitions of the formats, in float32."""
    scale = parts["scale"].astype(np.float32)
    packed = parts["packed"]
    if packed.dtype == np.int8:
        return packed * np.repeat(scale, packed.shape[1] // scale.shape[1], axis=1)
    levels = nibbles(packed).astype(np.float32)
    group = levels.shape[1] // scale.shape[1]
    if "minimum" in parts:
        minimum = parts["minimum"].astype(np.float32)
        return levels * np.repeat(scale, group, axis=1) + np.repeat(minimum, group, axis=1)
    zero = nibbles(parts["zero_point"].T).T[: len(levels)] if "zero_point" in parts else np.full(scale.shape, 8)
    return ((levels - np.repeat(zero, group, axis=1)) * np.repeat(scale, group, axis=1)).astype(np.float32)


def nibbles(words: np.ndarray) -> np.ndarray:
    """Eight numbers 0..15 a word of 32 bits, the first in its lowest bits."""
    shifts = 4 * np.arange(8, dtype=np.uint32)
    return ((words.astype(np.uint32)[..., None] >> shifts) & 15).reshape(len(words), -1)
