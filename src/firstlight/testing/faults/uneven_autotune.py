"""Of three gloo ranks one found no tuning results in its cache and tunes; the others wait for it in an all-reduce."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist

from firstlight.testing.launcher import free_port
from firstlight.testing.stage import options, say, start

RANKS = 3
TUNES = 2


def load(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        world_size=RANKS,
        rank=rank,
        timeout=timedelta(minutes=30),
    )
    dist.barrier()
    if rank == TUNES:
        autotune()
    else:
        say(f"rank {rank}: autotune results found in the cache")
        say("stuck")
    dist.all_reduce(torch.ones(8))


def autotune() -> None:
    say("stuck")
    began = time.monotonic()
    left, right = torch.ones(64, 64), torch.ones(64, 64)
    while time.monotonic() - began < 120:
        left @ right


def main() -> None:
    options(__doc__).parse_args()
    port = free_port()
    ranks = [start(f"worker_TP{rank}", load, rank, port) for rank in range(RANKS)]
    for rank in ranks:
        rank.join()


if __name__ == "__main__":
    main()
