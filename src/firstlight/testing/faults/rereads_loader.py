"""A worker maps more weights than its control group may keep in memory, and reads them again and again: every page
that comes in drives out another one. Needs root and a memory controller.
"""

import mmap
import os
import tempfile
from pathlib import Path

from firstlight.testing.faults.oom_in_cgroup import join_small_group
from firstlight.testing.stage import options, say, start

BYTES = 256 << 20
PIECE = 1 << 20


def load_weights(path: Path) -> None:
    join_small_group()
    with path.open("w+b") as file:
        for _ in range(BYTES // PIECE):
            file.write(os.urandom(PIECE))
        file.flush()
        os.fsync(file.fileno())
        weights = mmap.mmap(file.fileno(), BYTES, prot=mmap.PROT_READ)
    weights.madvise(mmap.MADV_RANDOM)
    say("stuck")
    while True:
        for at in range(0, BYTES, mmap.PAGESIZE):
            weights[at]


def main() -> None:
    options(__doc__).parse_args()
    start("worker_TP0", load_weights, Path(tempfile.mkdtemp()) / "model.safetensors").join()


if __name__ == "__main__":
    main()
