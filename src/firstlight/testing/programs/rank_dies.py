"""Stalls: a rank dies while it loads, by a traceback or by SIGKILL, and its parent waits for all ranks for ever."""

import os
import queue
import signal
import time

from firstlight.testing.stage import options, say, start


def load(rank: int, how: str) -> None:
    say(f"rank {rank} loads its weights")
    time.sleep(1)
    if rank == 1 and how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1:
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
    queue.Queue[str]().get()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--how", choices=["traceback", "killed"], default="traceback")
    given = parser.parse_args()
    for rank in range(3):
        start(f"worker_TP{rank}", load, rank, given.how)
    queue.Queue[str]().get()


if __name__ == "__main__":
    main()
