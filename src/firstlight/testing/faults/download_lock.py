"""A worker polls the lock file of a hub download with filelock; another process holds it and downloads nothing."""

import os
import tempfile
from pathlib import Path

from filelock import FileLock

from firstlight.testing.stage import options, say, start, wait_for_ever


def hold(path: Path) -> None:
    with FileLock(path):
        path.with_name("held").touch()
        wait_for_ever()


def download(path: Path) -> None:
    while not path.with_name("held").exists():
        os.sched_yield()
    say("stuck")
    with FileLock(path):
        say("downloaded")


def main() -> None:
    options(__doc__).parse_args()
    folder = Path(tempfile.mkdtemp()) / "hub" / ".locks" / "models--someone--something"
    folder.mkdir(parents=True)
    path = folder / "3f786850e387550fdab836ed7e6dc881de23001b.lock"
    start("worker_TP0", hold, path)
    start("worker_TP1", download, path).join()


if __name__ == "__main__":
    main()
