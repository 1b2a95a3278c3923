"""How fast weights are loaded, in GB/s, against a plain sequential read of the same files, cold and warm.

The checkpoint is made up: a Llama of 1.3 GB in bfloat16, in four shards, in a temporary folder that is removed again.
The plain read goes through one buffer of 1 MiB and keeps nothing; loading also has to find memory for every byte, so
it is measured against a sequential read that keeps what it reads, too. Files are made cold by asking the kernel to
drop their pages (posix_fadvise(2), POSIX_FADV_DONTNEED), before each reading.

    python benches/bench_loading.py [--folder FOLDER] [--times N] [--threads N]
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from firstlight.embedded.demo.safetensors_write import Entry, write_safetensors
from firstlight.embedded.model.checkpoint import expected_tensors, open_checkpoint
from firstlight.embedded.model.config import read_config
from firstlight.embedded.model.weights import load_weights
from pairs import Measure, compare

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 12,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}
SHARDS = 4
BUFFER = 1 << 20


def make(folder: Path) -> Sequence[Path]:
    """Write the checkpoint; returns its weight files."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tensors = expected_tensors(read_config(folder))
    file_of = {name: f"model-{index * SHARDS // len(tensors)}.safetensors" for index, name in enumerate(tensors)}
    for file in sorted(set(file_of.values())):
        own = [name for name in tensors if file_of[name] == file]
        entries = [
            Entry(name, "BF16", tensors[name].shape, partial(np.full, tensors[name].shape, 0x3C00, "<u2"))
            for name in own
        ]
        write_safetensors(folder / file, entries, lambda done, total: None)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": file_of}))
    return sorted(folder.glob("*.safetensors"))


def read_through(files: Sequence[Path]) -> None:
    """Through one buffer, keeping nothing."""
    buffer = bytearray(BUFFER)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def read_and_keep(files: Sequence[Path]) -> None:
    """Into memory that was not there before."""
    kept = [torch.empty(path.stat().st_size, dtype=torch.uint8) for path in files]
    for path, place in zip(files, kept, strict=True):
        view, done = place.numpy().data, 0
        with path.open("rb", buffering=0) as file:
            while got := file.readinto(view[done : done + BUFFER]):
                done += got


def load(folder: Path, rank: int, ranks: int, threads: int) -> None:
    config = read_config(folder)
    checkpoint = open_checkpoint(folder, config)
    load_weights(
        config,
        checkpoint,
        torch.bfloat16,
        rank=rank,
        ranks=ranks,
        threads=threads,
        count=lambda done, total, unit: None,
    )


def forget(files: Sequence[Path]) -> None:
    """Drop the files' pages from the page cache."""
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def gb_per_s(gigabytes: float, read: Callable[[], None], before: Callable[[], None] = lambda: None) -> Measure:
    def measure() -> float:
        before()
        began = time.perf_counter()
        read()
        return gigabytes / (time.perf_counter() - began)

    return measure


def main(folder: Path, times: int, threads: int) -> None:
    files = make(folder)
    size = sum(path.stat().st_size for path in files) / 1e9
    through, keep = partial(read_through, files), partial(read_and_keep, files)
    ours, cold = partial(load, folder, 0, 1, threads), partial(forget, files)
    speed = partial(compare, times=times, unit=" GB/s")
    print(f"{size:.2f} GB in {len(files)} files\n")
    speed("warm: plain read", gb_per_s(size, through), "loading", gb_per_s(size, ours))
    speed("warm: read and keep", gb_per_s(size, keep), "loading", gb_per_s(size, ours))
    speed("cold: plain read", gb_per_s(size, through, cold), "loading", gb_per_s(size, ours, cold))


print(__doc__)
parser = argparse.ArgumentParser()
parser.add_argument("--folder", type=Path, help="where to make the temporary folder; the disk that is measured")
parser.add_argument("--times", type=int, default=7)
parser.add_argument("--threads", type=int, default=0, help="threads that read; 0 as the engine chooses")
options = parser.parse_args()
with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
    main(Path(temporary), options.times, options.threads)
