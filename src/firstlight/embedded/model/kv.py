"""Keys and values in pages: one tensor each, made at the start, shared by all requests."""

import contextlib
import mmap
from math import prod

import torch
from torch import Tensor

from firstlight.embedded.model.config import ModelConfig
from firstlight.embedded.model.passes import PAGE

SPARE_PAGES = 1
"""Behind the pages of requests: where padding reads and writes (model/cuda_graphs.py)."""


class KvTensors:
    """`keys` and `values` of shape (layers, pages, K, PAGE, H), K being this rank's key-value heads."""

    def __init__(
        self,
        config: ModelConfig,
        pages: int,
        dtype: torch.dtype,
        *,
        ranks: int = 1,
        device: torch.device | None = None,
    ) -> None:
        self.kv_heads = config.kv_heads // ranks
        self.pages = pages
        shape = (config.layers, pages, self.kv_heads, PAGE, config.head_dim)
        self.keys = _zeros(shape, dtype, device)
        self.values = _zeros(shape, dtype, device)

    def write(self, layer: int, page_T: Tensor, slot_T: Tensor, k_TKH: Tensor, v_TKH: Tensor) -> None:
        """Store the new positions of a layer."""
        self.keys[layer, page_T, :, slot_T] = k_TKH.to(self.keys.dtype)
        self.values[layer, page_T, :, slot_T] = v_TKH.to(self.values.dtype)

    def gather(self, layer: int, table_BP: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of the pages of some sequences, in order: keys and values of shape (B, K, P * PAGE, H)."""
        return _in_order(self.keys[layer][table_BP]), _in_order(self.values[layer][table_BP])


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | None) -> Tensor:
    """Zeros that take no memory until something is written: straight from the kernel; torch would write them.

    They are numbers from the start, since a masked position still takes part in a product (see layers.attend for
    those that are not). Without huge pages, of which a few positions in every layer would each keep a whole one.
    """
    if device is not None and device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    memory = mmap.mmap(-1, prod(shape) * dtype.itemsize, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel that has no huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def _in_order(pages_BPKSH: Tensor) -> Tensor:
    return pages_BPKSH.transpose(1, 2).flatten(2, 3)


def page_bytes(config: ModelConfig, dtype: torch.dtype, ranks: int = 1) -> int:
    """Bytes of keys and values of one page on one rank."""
    return 2 * config.layers * (config.kv_heads // ranks) * PAGE * config.head_dim * dtype.itemsize
