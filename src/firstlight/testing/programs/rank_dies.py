"""Stalls: a rank ends while it loads, by a traceback, by SIGKILL or with code 0, and its parent waits for all ranks
for ever.
"""

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
    if rank == 1 and how == "exit":
        os._exit(0)
    if rank == 1:
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
    queue.Queue[str]().get()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--how", choices=["traceback", "killed", "exit"], default="traceback")
    given = parser.parse_args()
    for rank in range(3):
        start(f"worker_TP{rank}", load, rank, given.how)
    queue.Queue[str]().get()


if __name__ == "__main__":
    main()
