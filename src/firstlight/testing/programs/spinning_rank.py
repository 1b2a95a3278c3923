"""Stalls at 100 % CPU: a rank busy-waits for a flag in shared memory, and the peer that would set it was killed."""

import mmap
import os
import signal
import time

from firstlight.testing.stage import options, say, start

SHARED = mmap.mmap(-1, mmap.PAGESIZE)


def wait_for_flag() -> None:
    while SHARED[0] == 0:
        pass


def reduce() -> None:
    say("rank 0 all-reduces")
    wait_for_flag()


def die() -> None:
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    options(__doc__).parse_args()
    spinner = start("worker_TP0", reduce)
    start("worker_TP1", die)
    spinner.join()


if __name__ == "__main__":
    main()
