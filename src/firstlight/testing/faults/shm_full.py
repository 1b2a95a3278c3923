"""/dev/shm is full: a rank is refused its segment, says so, and the others wait for it. Needs root.

The small /dev/shm is mounted in a mount namespace of the program's own, as a container has one.
"""

import ctypes
import os
import sys
from pathlib import Path

from firstlight.testing.stage import mount_namespace, options, say, start, wait_for_ever

SIZE = "1m"


def attach(rank: int) -> None:
    try:
        with Path(f"/dev/shm/psm_exchange_{rank}").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 4 << 20)
    except OSError as error:
        say(f"NCCL WARN Call to posix_fallocate failed: {error.strerror}")
    say("stuck")
    all_reduce()


def all_reduce() -> None:
    wait_for_ever()


def mount_small_shm() -> None:
    mount_namespace()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", ctypes.c_ulong(0), f"size={SIZE}".encode()) != 0:
        sys.exit(f"cannot make a /dev/shm of its own: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    options(__doc__).parse_args()
    mount_small_shm()
    Path("/dev/shm/left_by_an_earlier_run").write_bytes(bytes((1 << 20) - 8192))
    ranks = [start(f"worker_TP{rank}", attach, rank) for rank in range(2)]
    for rank in ranks:
        rank.join()


if __name__ == "__main__":
    main()
