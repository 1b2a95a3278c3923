"""A worker waits for the lock file of an extension build; a compiler works in that folder, or fails every time."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from firstlight.testing.stage import options, say, start

COMPILING = """
import time
while time.process_time() < 300:
    pass
"""
FAILING = "import sys; sys.exit(1)"


def build(folder: Path, fails: bool) -> None:
    """Runs a compiler in the folder: one long run, or one after the other that ends with an error."""
    os.chdir(folder)
    code = FAILING if fails else COMPILING
    compiler = folder / "cicc"
    compiler.symlink_to(sys.executable)
    say("stuck")
    while True:
        if subprocess.run([compiler, "-c", code], check=False).returncode:
            say("ERROR: ninja: build stopped: subcommand failed. nvcc fatal: Unsupported gpu architecture")
            time.sleep(0.2)


def wait_for_lock(lock: Path) -> None:
    say("stuck")
    file_baton_wait(lock)


def file_baton_wait(lock: Path) -> None:
    while lock.exists():
        time.sleep(0.1)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--fails", action="store_true")
    given = parser.parse_args()
    cache = Path(tempfile.mkdtemp())
    folder = cache / "torch_extensions" / "py311_cu128" / "fused_moe"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    if "TORCH_EXTENSIONS_DIR" not in os.environ:
        os.environ["TORCH_EXTENSIONS_DIR"] = str(cache / "torch_extensions")
    start("worker_TP0", build, folder, given.fails)
    start("worker_TP1", wait_for_lock, folder / "lock").join()


if __name__ == "__main__":
    main()
