"""A worker's thread pool hits the pids limit of its control group; what needs the pool waits.

Needs root and cgroup v1.
"""

import os
import sys
import threading
from pathlib import Path

from firstlight.testing.stage import options, say, start, wait_for_ever

LIMIT = 12
GROUPS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))


def load() -> None:
    try:
        for _ in range(LIMIT + 8):
            threading.Thread(target=wait_for_ever, daemon=True).start()
    except RuntimeError as error:
        say(f"ERROR: {error}")
    say("stuck")
    wait_for_ever()


def limited() -> Path:
    """A control group of its own with few pids, this process in it."""
    root = next((path for path in GROUPS if (path / "cgroup.procs").exists()), None)
    if root is None:
        sys.exit("no pids controller is mounted")
    group = root / f"firstlight-{os.getpid()}"
    group.mkdir()
    (group / "pids.max").write_text(str(LIMIT))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    return group


def main() -> None:
    options(__doc__).parse_args()
    limited()
    start("worker_TP0", load).join()


if __name__ == "__main__":
    main()
