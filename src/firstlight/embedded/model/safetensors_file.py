"""The header of a safetensors file: which tensor lies where. Checked as hostile input; nothing else is read.

The format: eight bytes with the length of the header, the header (a JSON object of names with dtype, shape and the
range of bytes behind the header), then the tensors. Source: the description of the format in the safetensors project.
The package itself does not tell where a tensor lies, and the reader of weights must know (see `reading`).
"""

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated

import msgspec

from firstlight.embedded.errors import ModelNotUsable
from firstlight.embedded.model.patience import within_patience

COPY_AGAIN = "Copy or download it again"
DTYPE_BYTES = (
    dict.fromkeys(("F64", "I64", "U64"), 8)
    | dict.fromkeys(("F32", "I32", "U32"), 4)
    | dict.fromkeys(("F16", "BF16", "I16", "U16"), 2)
    | dict.fromkeys(("F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL"), 1)
)
LONGEST_HEADER = 100_000_000
"""The format's own limit, in bytes."""

NotNegative = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies and what it is; `dtype` in the words of safetensors, `start` in bytes from the file's."""

    file: Path
    shape: tuple[int, ...]
    dtype: str
    start: int

    @property
    def bytes(self) -> int:
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[NotNegative]
    data_offsets: tuple[NotNegative, NotNegative]


def read_header(path: Path) -> dict[str, StoredTensor]:
    """All tensors of a file by name. Raises ModelNotUsable, naming the file and what is wrong with it."""
    if not path.exists():
        raise ModelNotUsable(f"weight file {path} is missing", COPY_AGAIN)
    if not path.is_file():
        # Opening a FIFO or a device could block for ever.
        raise ModelNotUsable(f"weight file {path} is not a regular file", COPY_AGAIN)
    try:
        header, size = within_patience(path, lambda: _header_bytes(path))
        raw = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        entries = {
            name: msgspec.json.decode(entry, type=_Entry) for name, entry in raw.items() if name != "__metadata__"
        }
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    return {name: _placed(path, name, entry, 8 + len(header), size) for name, entry in entries.items()}


def _header_bytes(path: Path) -> tuple[bytes, int]:
    """The header and the size of the file."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, LONGEST_HEADER):
            raise _damaged(path, "it has no whole header")
        return file.read(length), size


def _placed(path: Path, name: str, entry: _Entry, data: int, size: int) -> StoredTensor:
    """The tensor of an entry, `data` being where the header ends and `size` where the file does."""
    if entry.dtype not in DTYPE_BYTES:
        raise ModelNotUsable(f"tensor {name} in {path} is {entry.dtype}, which this engine does not know")
    begin, end = entry.data_offsets
    tensor = StoredTensor(path, tuple(entry.shape), entry.dtype, data + begin)
    if end - begin != tensor.bytes:
        raise _damaged(path, f"tensor {name} has {end - begin} bytes and should have {tensor.bytes}")
    if data + end > size:
        raise _damaged(path, f"tensor {name} ends at byte {data + end}")
    return tensor


def _damaged(path: Path, what: str) -> ModelNotUsable:
    return ModelNotUsable(
        f"weight file {path} ({path.stat().st_size} bytes) is damaged or cut short: {what}", COPY_AGAIN
    )
