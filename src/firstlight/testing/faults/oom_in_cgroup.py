"""A rank is killed by the kernel because its control group ran out of memory; its parent waits for "ready".

Needs root and a memory controller.
"""

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from firstlight.testing.stage import options, say, start

LIMIT_BYTES = 96 << 20
STEP_BYTES = 8 << 20


def load(ready: Connection) -> None:
    join_small_group()
    say("Loading weights: 1/8 shards")
    kept = []
    while True:
        kept.append(os.urandom(STEP_BYTES))


def join_small_group() -> None:
    """A control group of its own with little memory (cgroup v1 or v2), this process in it."""
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        if (root / "cgroup.procs").exists():
            group = root / f"firstlight-{os.getpid()}"
            group.mkdir()
            (group / limit).write_text(str(LIMIT_BYTES))
            (group / "cgroup.procs").write_text(str(os.getpid()))
            return
    sys.exit("no memory controller is mounted")


def main() -> None:
    options(__doc__).parse_args()
    ours, theirs = multiprocessing.Pipe()
    start("worker_TP0", load, theirs)
    say("waiting for the worker")
    ours.recv()


if __name__ == "__main__":
    main()
