"""Fill a model from its files: memory-mapped, copied in pieces, progress in bytes."""

from collections.abc import Callable, Iterator
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from firstlight.embedded.model.checkpoint import Checkpoint
from firstlight.embedded.model.decoder import Model

PIECE = 4 << 20
"""Elements copied between two signs of progress, so that a slow disk shows as slow and a dead one as dead."""

Count = Callable[[int, int, str], None]


def load(model: Model, checkpoint: Checkpoint, count: Count) -> None:
    """Copy every stored tensor to its place, file by file; `count(done, total, "bytes")` after each piece."""
    places = model.destinations()
    total = sum(tensor.bytes for tensor in checkpoint.values())
    done = 0
    count(done, total, "bytes")
    for path in sorted({tensor.file for tensor in checkpoint.values()}):
        with safe_open(path, "pt") as file:
            for name in _names_in(path, checkpoint):
                source = file.get_tensor(name)
                for copied in _copy(source, places[name]):
                    done += copied
                    count(done, total, "bytes")


def _names_in(path: Path, checkpoint: Checkpoint) -> list[str]:
    return [name for name, tensor in checkpoint.items() if tensor.file == path]


def _copy(source: Tensor, place: Tensor) -> Iterator[int]:
    """Copy piece by piece, converting the dtype on the way; yields the bytes read from the file."""
    source, place = source.view(-1), place.view(-1)
    for start in range(0, source.numel(), PIECE):
        piece = source[start : start + PIECE]
        place[start : start + PIECE] = piece
        yield piece.numel() * piece.element_size()
