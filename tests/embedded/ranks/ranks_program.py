"""Ranks without a model: they meet, run passes of a few collectives, and idle. Started as a process by the tests.

Imports torch once and then waits at a Unix socket, given as the only argument. A client sends one line, a JSON list
of options, and gets ranks of its own, as forked processes. It is told, one JSON object a line: their pids; "idle"
when all passes are done; what the ranks say of their failures; how each of them ended. After that the connection
closes. If the client closes its half, rank 0 ends the others in order.
"""

import argparse
import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

import model_rank
import torch

from firstlight.embedded.errors import EngineError
from firstlight.embedded.log import Silence
from firstlight.embedded.model.passes import Pass
from firstlight.embedded.worker.board import Board, OwnStamp
from firstlight.embedded.worker.peers import Follower, Leader
from firstlight.embedded.worker.progress import Progress
from firstlight.embedded.worker.ranks import Ranks
from firstlight.embedded.worker.wiring import Wiring, add_options, peer_sockets

LAYERS = 2
WIDTH = 8
MOST_ROWS = 4


def tell(**facts: object) -> None:
    raw = json.dumps(facts).encode() + b"\n"
    while raw:
        raw = raw[os.write(1, raw) :]


def values(rank: int, rows: int) -> torch.Tensor:
    """Numbers whose sum depends on the order of adding."""
    return torch.randn(MOST_ROWS, WIDTH, generator=torch.Generator().manual_seed(rank))[:rows] * 10.0 ** (4 * rank)


class Rank:
    """One rank's whole life."""

    def __init__(self, options: argparse.Namespace, tie: argparse.Namespace) -> None:
        self.options = options
        self.store_fd = tie.store_fd
        self.sockets = peer_sockets(tie)
        self.rank = rank = tie.rank
        self.board = Board(tie.board_fd)
        self.stamp = OwnStamp(self.board, rank)
        self.progress = Progress(rank, Silence("rank"), lambda stamp: None, self.stamp)

    def live(self) -> int:
        try:
            self.work()
        except EngineError as error:
            return self.fail(str(error))
        except RuntimeError as error:
            return self.fail(f"rank {self.rank} itself: {error}")
        return 0

    def fail(self, message: str) -> int:
        if self.board.claim(self.rank):
            tell(event="said", message=message)
        return 1

    def join(self) -> Ranks:
        deadline_s = self.options.deadline
        return Ranks.join(self.board, self.rank, self.stamp, store_fd=self.store_fd, deadline_s=deadline_s)

    def work(self) -> None:
        deadline_s = self.options.deadline
        if self.options.model:
            answers = model_rank.live(self.options, self.progress, self.stamp, self.sockets, self.join)
            tell(event="answered" if self.rank == 0 else "followed", answers=answers)
            return
        with self.progress.phase("rendezvous"):
            ranks = self.join()
        self.progress.enter("serving")
        if self.rank == self.options.late:
            time.sleep(0.2)
        others, stamp = ranks.meeting.others, self.stamp
        if self.rank == 0:
            self.lead(ranks, Leader(self.sockets, others, stamp, deadline_s))
        else:
            self.follow(ranks, Follower(self.sockets[0], others, stamp, deadline_s))
        ranks.leave()

    def lead(self, ranks: Ranks, leader: Leader) -> None:
        for number in range(self.options.first, self.options.first + self.options.passes):
            work = Pass(number=number, kind="decode", tokens=[1] * self.options.rows, spans=[], wanted=[])
            leader.send(work)
            self.run(ranks, work)
        tell(event="idle")
        while not select.select([0], [], [], 0.2)[0]:
            leader.check()
        leader.stop()

    def follow(self, ranks: Ranks, follower: Follower) -> None:
        while (work := follower.receive()) is not None:
            self.run(ranks, work)

    def run(self, ranks: Ranks, work: Pass) -> None:
        ranks.begin(work.number, work.kind)
        rows = len(work.tokens) + (self.rank == self.options.wide and work.number == 2)
        for layer in range(LAYERS):
            total = ranks.sum(values(self.rank, rows), f"layer {layer} attention")
            ranks.sum(values(self.rank, rows), f"layer {layer} mlp")
            self.progress.beat()
        whole = ranks.gather_columns(torch.full((rows, 2), float(self.rank)), "scores")
        if self.options.tell_sums:
            tell(rank=self.rank, total=total[0].tolist(), whole=whole.tolist())


def main(path: str) -> None:
    torch.set_num_threads(1)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.write(1, b"listening\n")
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(connection.fileno(), 0)
            os.dup2(connection.fileno(), 1)
            keep_only({0, 1, 2})
            run(json.loads(read_line()))
            os._exit(0)
        connection.close()


def read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 1)
    return line


def run(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--deadline", type=float, required=True)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--first", type=int, default=1, help="number of the first pass")
    parser.add_argument("--late", type=int, default=-1, help="this rank takes its time before the first pass")
    parser.add_argument("--wide", type=int, default=-1, help="this rank brings a row too many to pass 2")
    parser.add_argument("--absent", type=int, default=-1, help="this rank never begins")
    parser.add_argument("--tell-sums", action="store_true")
    parser.add_argument("--fault", default="")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--model", default="", help="a real model, which answers the prompts; see model_rank.py")
    parser.add_argument("--drafter", default="")
    parser.add_argument("--prompt", action="append", default=[])
    options = parser.parse_args(arguments)
    os.environ["FIRSTLIGHT_FAULT"] = options.fault
    os.environ["FIRSTLIGHT_KERNELS"] = options.kernels
    wiring = Wiring(options.ranks)
    pids = {rank: fork(options, wiring, rank) for rank in range(options.ranks)}
    wiring.let_go()
    tell(event="started", pids=list(pids.values()))
    rank_of = {pid: rank for rank, pid in pids.items()}
    for _ in pids:
        pid, status = os.waitpid(-1, 0)
        tell(event="ended", rank=rank_of[pid], status=os.waitstatus_to_exitcode(status))


def fork(options: argparse.Namespace, wiring: Wiring, rank: int) -> int:
    if pid := os.fork():
        return pid
    status = 70
    try:
        if rank == options.absent:
            select.select([0], [], [])
        tie = argparse.ArgumentParser()
        add_options(tie)
        keep_only({0, 1, 2, *wiring.descriptors(rank)})
        status = Rank(options, tie.parse_args(wiring.arguments(rank))).live()
    finally:
        os._exit(status)


def keep_only(kept: set[int]) -> None:
    """A rank inherits what is its own: the sockets of others, held open here, would hide their end."""
    for fd in [int(link.name) for link in Path("/proc/self/fd").iterdir()]:
        if fd not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)


if __name__ == "__main__":
    main(sys.argv[1])
