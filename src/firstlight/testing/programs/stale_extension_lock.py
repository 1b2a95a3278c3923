"""Stalls: the lock file of an extension build was left behind; the worker polls it ten times a second for ever.

This is what torch.utils.cpp_extension does: whoever creates the file `lock` in the build folder builds, all others
wait for it to go. A builder that was killed leaves it, and no kernel table knows of it.
"""

import os
import tempfile
import time
from pathlib import Path

from firstlight.testing.stage import options, say, start

POLL_S = 0.1


class FileBaton:
    """The right to build, held by whoever created the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def try_acquire(self) -> bool:
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def wait(self) -> None:
        while self.path.exists():
            time.sleep(POLL_S)


def build(folder: Path) -> None:
    baton = FileBaton(folder / "lock")
    say(f"Using {folder} as PyTorch extensions root...")
    if not baton.try_acquire():
        baton.wait()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--folder", type=Path, help="where the cache is made; a temporary folder if not given")
    given = parser.parse_args()
    folder = (given.folder or Path(tempfile.mkdtemp())) / "torch_extensions" / "py311_cpu" / "fused_rotary"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    start("worker_TP0", build, folder).join()


if __name__ == "__main__":
    main()
