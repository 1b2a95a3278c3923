"""Stalls: of three ranks, two wait at a gloo rendezvous for the third, which waits for something else."""

from datetime import timedelta

import torch.distributed

from firstlight.testing.launcher import free_port
from firstlight.testing.stage import options, say, start, wait_for_ever

RANKS = 3


def join(rank: int, port: int) -> None:
    say(f"rank {rank} joins the process group, world_size={RANKS} backend=gloo")
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        world_size=RANKS,
        rank=rank,
        timeout=timedelta(minutes=30),
    )


def fetch_tokenizer() -> None:
    say("rank 2 fetches the tokenizer first")
    wait_for_ever()


def main() -> None:
    options(__doc__).parse_args()
    port = free_port()
    ranks = [start(f"worker_TP{rank}", join, rank, port) for rank in range(RANKS - 1)]
    ranks.append(start(f"worker_TP{RANKS - 1}", fetch_tokenizer))
    for rank in ranks:
        rank.join()


if __name__ == "__main__":
    main()
