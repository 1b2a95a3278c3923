"""Tensor parallelism: what the ranks of one server exchange, each time under a name and with a deadline.

Partial results are gathered and then added in the order of the ranks, so the sum is the same bit for bit on every
rank and however many rows there are. Every collective begins with a `Meeting`, which finds a rank that is missing or
in the wrong place; only then do the numbers go through torch.distributed: gloo between CPUs, NCCL between GPUs.

The ranks find each other through a FileStore on an inherited anonymous file (`wiring`), so there is no port that
someone else could take first. gloo's own connections are on the loopback device and ports that the kernel chooses.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from datetime import timedelta

import torch
from torch import Tensor, distributed

from firstlight.embedded.errors import EngineError
from firstlight.embedded.worker import faults
from firstlight.embedded.worker.board import Board, OwnStamp, create
from firstlight.embedded.worker.meeting import Meeting
from firstlight.embedded.worker.patience import Patience

JOIN_DEADLINES = 4
"""The others' imports and disks may be slower than ours, by this many deadlines of a collective."""
TRANSPORT_DEADLINES = 4
"""When the transport itself gives up. It cannot tell its own pause from one of the others, so it comes last."""
SPINS = 20
NAP_S = 50e-6
NAPS = 100
"""Naps between two looks at whether the others are alive: some ten milliseconds."""
END_SEEN_S = 1.0
"""How long a process whose connection was reset may take to end."""


class Ranks:
    """This rank among all. With one rank everything is a no-op and nobody is talked to."""

    def __init__(self, board: Board, rank: int, stamp: OwnStamp, deadline_s: float) -> None:
        self.rank = rank
        self.size = board.ranks
        self.meeting = Meeting(board, rank, stamp, deadline_s)
        self._stamp = stamp
        self._deadline_s = deadline_s
        self._fault = faults.fault_of(rank)

    @classmethod
    def alone(cls) -> "Ranks":
        """One rank."""
        board = Board(create(1))
        return cls(board, 0, OwnStamp(board, 0), 0.0)

    @classmethod
    def join(
        cls, board: Board, rank: int, stamp: OwnStamp, *, store_fd: int, deadline_s: float, device: str = "cpu"
    ) -> "Ranks":
        """Find the others, and agree that everyone is there. Raises RankLost, which says who has not come.

        `deadline_s` is for every collective; the others may take longer until they are here. Not tried on GPUs: there
        each rank is to have called torch.cuda.set_device before.
        """
        ranks = cls(board, rank, stamp, deadline_s)
        if ranks.size > 1:
            ranks.meeting.meet("the rendezvous", 0, JOIN_DEADLINES * deadline_s)
            with ranks._named("the rendezvous"):
                _init_group(store_fd, rank, ranks.size, device, TRANSPORT_DEADLINES * deadline_s)
        return ranks

    def begin(self, number: int, kind: str) -> None:
        """Begin a pass: its collectives are counted from here."""
        self._stamp.begin(number, f"{kind} pass {number}")
        if self._fault is not None:
            self._fault.strikes(self._stamp.phase, number, what=self._stamp.what)

    def sum(self, partial: Tensor, what: str) -> Tensor:
        """The sum of what all ranks have, added in their order, on every rank. `what` says it: "layer 3 mlp"."""
        if self.size == 1 or not self._meet(partial, what):
            return partial
        parts = self._room(partial)
        with self._named(what):
            self._finish(distributed.all_gather(parts, partial.contiguous(), async_op=True))
        total = parts[0]
        for part in parts[1:]:
            total += part
        return total

    def gather_columns(self, columns: Tensor, what: str) -> Tensor:
        """Rank 0 gets all columns (rows, V) from each rank's (rows, V / ranks), in order; the others get no rows."""
        if self.size == 1:
            return columns
        if not self._meet(columns, what):
            return columns
        parts = self._room(columns) if self.rank == 0 else None
        with self._named(what):
            self._finish(distributed.gather(columns.contiguous(), parts, dst=0, async_op=True))
        return torch.cat(parts, -1) if parts else columns.new_empty(0, columns.shape[-1] * self.size)

    def leave(self) -> None:
        """Close the connections at the end."""
        if self.size > 1 and distributed.is_initialized():
            distributed.destroy_process_group()

    def _meet(self, mine: Tensor, what: str) -> bool:
        """Meet the others. False, and no meeting, only if a test wants this collective left out."""
        stamp = self._stamp
        if self._fault is not None and self._fault.strikes(stamp.phase, stamp.number, stamp.collective + 1, what):
            return False
        self.meeting.meet(what, mine.numel() * mine.itemsize)
        return True

    def _room(self, mine: Tensor) -> list[Tensor]:
        return [torch.empty(mine.shape, dtype=mine.dtype, device=mine.device) for _ in range(self.size)]

    def _finish(self, work: distributed.Work) -> None:
        """Wait until an exchange is over. Raises RankLost as a meeting does, and what the transport raises."""
        others = self.meeting.others
        patience = Patience(self._deadline_s)
        for look in itertools.count(1):
            if work.is_completed():
                break
            if look <= SPINS:
                os.sched_yield()
                continue
            time.sleep(NAP_S)
            if look % NAPS == 0:
                others.check_alive()
                if patience.ended([others.board.read(rank).steps for rank in others.ranks]):
                    raise others.silent(others.suspect(others.ranks), patience.waited_s)
        work.wait()

    @contextlib.contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """What torch.distributed raises, in our words: who is missing, if someone is."""
        began = time.monotonic()
        if self._fault is not None:
            self._fault.strikes(self._stamp.phase, self._stamp.number, self._stamp.collective, f"exchange of {what}")
        try:
            yield
        except RuntimeError as error:
            others = self.meeting.others
            others.check_alive(END_SEEN_S)
            waited_s = time.monotonic() - began
            if waited_s > self._deadline_s:
                raise others.silent(others.suspect(others.ranks), waited_s) from error
            raise EngineError(f"the exchange of {what} failed: {error}") from error


def _init_group(store_fd: int, rank: int, size: int, device: str, deadline_s: float) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    timeout = timedelta(seconds=deadline_s)
    store = distributed.FileStore(f"/proc/self/fd/{store_fd}", size)  # type: ignore[attr-defined]  # no stub
    store.set_timeout(timeout)
    backend = "nccl" if device == "cuda" else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
