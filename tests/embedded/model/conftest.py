"""Loading a model folder in one call."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

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
