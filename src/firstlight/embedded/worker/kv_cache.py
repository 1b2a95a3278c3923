"""Keys and values of running requests: one tensor made at the start, one slot for each request that may run at once.

The memory is reserved, not touched: the kernel hands out pages as positions are written.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.embedded.errors import WrongUsage
from firstlight.embedded.machine import available_memory
from firstlight.embedded.model.config import ModelConfig


@dataclass(frozen=True)
class KvSlot:
    """The cache of one request: keys and values of all layers, each of shape (layers, K, positions, H)."""

    index: int
    keys: Tensor
    values: Tensor

    def write(self, layer: int, start: int, k_TKH: Tensor, v_TKH: Tensor) -> tuple[Tensor, Tensor]:
        """Store the new positions of a layer; returns all keys and values so far, as views of shape (K, S, H)."""
        end = start + k_TKH.shape[0]
        keys, values = self.keys[layer], self.values[layer]
        keys[:, start:end] = k_TKH.transpose(0, 1)
        values[:, start:end] = v_TKH.transpose(0, 1)
        return keys[:, :end], values[:, :end]


class KvCache:
    """All slots, and which of them are free."""

    def __init__(self, config: ModelConfig, slots: int, positions: int, dtype: torch.dtype) -> None:
        self.positions = positions
        self.bytes = kv_bytes(config, slots, positions, dtype)
        _check_memory(self.bytes, slots, positions)
        shape = (2, slots, config.layers, config.kv_heads, positions, config.head_dim)
        keys, values = torch.empty(shape, dtype=dtype)
        self._free = [KvSlot(index, keys[index], values[index]) for index in reversed(range(slots))]

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> KvSlot:
        return self._free.pop()

    def give_back(self, slot: KvSlot) -> None:
        self._free.append(slot)


def kv_bytes(config: ModelConfig, slots: int, positions: int, dtype: torch.dtype) -> int:
    """Bytes that full slots would need."""
    return 2 * slots * config.layers * config.kv_heads * positions * config.head_dim * dtype.itemsize


def _check_memory(needed: int, slots: int, positions: int) -> None:
    """Refuse now rather than be killed for memory in the middle of a request."""
    available = available_memory()
    if needed > available:
        raise WrongUsage(
            f"the KV cache of {slots} requests of {positions} tokens needs {needed >> 20} MiB; "
            f"{available >> 20} MiB of memory are available",
            "Set a smaller --max-model-len or --max-num-seqs",
        )
