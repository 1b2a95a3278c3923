"""Stalls: of three gloo ranks, one skips a barrier and goes on to its loop; the others wait for it there."""

import queue
from datetime import timedelta

import torch.distributed

from firstlight.testing.launcher import free_port
from firstlight.testing.stage import options, say, start

RANKS = 3
SKIPS = 1


def load(rank: int, port: int) -> None:
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        world_size=RANKS,
        rank=rank,
        timeout=timedelta(minutes=30),
    )
    torch.distributed.barrier()
    say(f"rank {rank} has loaded its weights")
    if rank != SKIPS:
        torch.distributed.barrier()
    event_loop()


def event_loop() -> None:
    requests: queue.Queue[str] = queue.Queue()
    while True:
        requests.get()


def main() -> None:
    options(__doc__).parse_args()
    port = free_port()
    ranks = [start(f"worker_TP{rank}", load, rank, port) for rank in range(RANKS)]
    for rank in ranks:
        rank.join()


if __name__ == "__main__":
    main()
