"""Stalls: once a second it looks for a file that nobody ever writes."""

import tempfile
import time
from pathlib import Path

from firstlight.testing.stage import options, say

POLL_S = 1.0


def wait_for_file(path: Path) -> None:
    while not path.exists():
        time.sleep(POLL_S)


def main() -> None:
    options(__doc__).parse_args()
    say("Waiting for the weights to be copied")
    with tempfile.TemporaryDirectory() as folder:
        wait_for_file(Path(folder, "model.safetensors.done"))


if __name__ == "__main__":
    main()
