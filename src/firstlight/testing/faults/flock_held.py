"""A worker waits for a flock on a file of the compile cache that another process holds, which does nothing."""

import fcntl
import tempfile
from pathlib import Path

from firstlight.testing.stage import options, say, start, wait_for_ever


def hold(path: Path) -> None:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        say("holding")
        wait_for_ever()


def build(path: Path) -> None:
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                break
            fcntl.flock(file, fcntl.LOCK_UN)
        say("stuck")
        fcntl.flock(file, fcntl.LOCK_EX)


def main() -> None:
    options(__doc__).parse_args()
    path = Path(tempfile.mkdtemp()) / "fused_moe.lock"
    start("worker_TP0", hold, path)
    start("worker_TP1", build, path).join()


if __name__ == "__main__":
    main()
