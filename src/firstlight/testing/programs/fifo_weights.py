"""Stalls: a worker opens a weights file that is a FIFO nobody writes; its parent waits for "ready"."""

import multiprocessing
import os
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

from firstlight.testing.stage import options, say, start


def load(weights: Path, ready: Connection) -> None:
    say(f"Loading weights from {weights}")
    with weights.open("rb") as file:
        file.read(8)
    ready.send("ready")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--folder", type=Path, help="where the FIFO is made; a temporary folder if not given")
    given = parser.parse_args()
    weights = (given.folder or Path(tempfile.mkdtemp())) / "model.safetensors"
    os.mkfifo(weights)
    ours, theirs = multiprocessing.Pipe()
    start("worker_TP0", load, weights, theirs)
    ours.recv()


if __name__ == "__main__":
    main()
