"""Writes a safetensors file, one tensor in memory at a time.

The format: eight bytes with the length of the header, the header (a JSON object of names with dtype, shape and the
range of bytes behind the header), then the tensors. Source: the description of the format in the safetensors project.
"""

import json
import os
import struct
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Progress = Callable[[float, float], None]
"""Called with (bytes done, bytes in all)."""

DTYPES: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype("<u2"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "I8": np.dtype("i1"),
}
"""What the numbers of each kind are in numpy; bfloat16 is given as its bits."""


class Entry(NamedTuple):
    """A tensor of the file; `make` is called when it is its turn to be written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    make: Callable[[], np.ndarray]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * int(DTYPES[self.dtype].itemsize)


def write_safetensors(path: Path, entries: Sequence[Entry], progress: Progress) -> None:
    """Write the file and flush it to the disk. Raises OSError."""
    header, total, done = _header(entries), sum(entry.bytes for entry in entries), 0
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for entry in entries:
            progress(done, total)
            done += file.write(entry.make().astype(DTYPES[entry.dtype], copy=False).tobytes())
        file.flush()
        os.fsync(file.fileno())
    progress(done, total)


def _header(entries: Sequence[Entry]) -> bytes:
    """Padded with spaces to a multiple of eight."""
    content: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for entry in entries:
        end = offset + entry.bytes
        content[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(content, separators=(",", ":")).encode()
    return header + b" " * (-len(header) % 8)
