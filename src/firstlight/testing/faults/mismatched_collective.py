"""Two gloo ranks meet in different collectives: in another order, in another group, or both sending."""

from datetime import timedelta

import torch
import torch.distributed as dist

from firstlight.testing.launcher import free_port
from firstlight.testing.stage import options, say, start

RANKS = 2
BIG = 4 << 20


def order(rank: int) -> None:
    """Each rank begins with the collective that the other does second."""
    tensor = torch.ones(8)
    if rank == 0:
        dist.all_reduce(tensor)
        dist.broadcast(tensor, src=0)
    else:
        dist.broadcast(tensor, src=1)
        dist.all_reduce(tensor)


def group(rank: int) -> None:
    """Each rank waits for the other in a group of its own."""
    tensor_parallel, vision_tower = dist.new_group([0, 1]), dist.new_group([0, 1])
    dist.all_reduce(torch.ones(8), group=tensor_parallel if rank == 0 else vision_tower)


def send(rank: int) -> None:
    """Both pipeline stages receive first."""
    dist.recv(torch.empty(BIG), src=1 - rank)


HOW = {"order": order, "group": group, "receive": send}


def load(rank: int, port: int, how: str) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        world_size=RANKS,
        rank=rank,
        timeout=timedelta(minutes=30),
    )
    dist.barrier()
    say("stuck")
    HOW[how](rank)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--how", choices=HOW, default="order")
    given = parser.parse_args()
    port = free_port()
    ranks = [start(f"worker_TP{rank}", load, rank, port, given.how) for rank in range(RANKS)]
    for rank in ranks:
        rank.join()


if __name__ == "__main__":
    main()
