"""Weights moved to a GPU."""

from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def moved(weights: T, device: torch.device) -> T:
    """The same weights, every tensor in the memory of `device`. What shares memory here does not share it there."""
    moved_weights: T = _moved(weights, device)
    return moved_weights


def _moved(thing: Any, device: torch.device) -> Any:
    if isinstance(thing, Tensor):
        return thing.to(device)
    if isinstance(thing, tuple):
        return tuple(_moved(part, device) for part in thing)
    if is_dataclass(thing) and not isinstance(thing, type):
        return type(thing)(**{field.name: _moved(getattr(thing, field.name), device) for field in fields(thing)})
    return thing
