"""The worker: one process, one rank, one working thread, which loads the model and then runs passes.

Started by the front as `python -m firstlight.embedded.worker …` with the options of `plan` and `wiring`. Everything,
messages included, is done by the one thread, so its stamps (`progress`) stop when the work stops. Rank 0 takes the
requests and decides on every pass; the others run the passes that it sends.
"""

import argparse
import contextlib
import ctypes
import os
import signal
import socket
import sys
import traceback
from typing import TYPE_CHECKING

from firstlight.embedded.channel import Channel
from firstlight.embedded.errors import EngineError, PeerGone
from firstlight.embedded.log import Log
from firstlight.embedded.machine import name_process
from firstlight.embedded.messages import Failed
from firstlight.embedded.worker import plan, wiring
from firstlight.embedded.worker.board import Board, OwnStamp
from firstlight.embedded.worker.progress import Progress

if TYPE_CHECKING:
    from firstlight.embedded.worker.ranks import Ranks

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    _die_with_parent()
    name_process(f"fl-worker-{options.rank}")
    log = Log(f"worker rank={options.rank}")
    os.set_inheritable(options.control_fd, False)
    channel = Channel(socket.socket(fileno=options.control_fd))
    board = Board(options.board_fd)
    try:
        _work(options, board, log, channel)
    except PeerGone:
        log.say("info", "the front has ended; so does this worker")
        return 0
    except EngineError as error:
        return _fail(options.rank, board, log, channel, str(error))
    except Exception as error:  # noqa: BLE001 (the last border: said in the log and to the front, then the end)
        log.say("error", traceback.format_exc())
        return _fail(options.rank, board, log, channel, f"{type(error).__name__}: {error}")
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="firstlight.embedded.worker", description=__doc__)
    parser.add_argument("--control-fd", type=int, required=True)
    wiring.add_options(parser)
    plan.add_options(parser)
    return parser.parse_args(arguments)


def _die_with_parent() -> None:
    """Ask the kernel to end this process when the front ends, even if this process is stopped by then (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _fail(rank: int, board: Board, log: Log, channel: Channel, message: str) -> int:
    """Say why, unless another rank was first: what it said is the reason, and ours only a consequence."""
    if not board.claim(rank):
        log.say("info", f"ends with rank {board.claimed}: {message}")
        return 1
    log.say("error", message)
    with contextlib.suppress(EngineError):
        channel.send(Failed(message=message))
    return 1


def _work(options: argparse.Namespace, board: Board, log: Log, channel: Channel) -> None:
    from firstlight.embedded.worker.assembly import assemble

    rank = options.rank
    asked = plan.plan_of(options)
    stamp = OwnStamp(board, rank)
    progress = Progress(rank, log, channel.send, stamp)
    socks = wiring.peer_sockets(options)

    def join() -> "Ranks":
        from firstlight.embedded.worker.ranks import Ranks

        return Ranks.join(board, rank, stamp, store_fd=options.store_fd, deadline_s=asked.wait_deadline_s)

    assembled = assemble(asked, progress, join)
    from firstlight.embedded.worker import rounds
    from firstlight.embedded.worker.peers import Follower, Leader

    others = assembled.ranks.meeting.others
    progress.enter("serving")
    if rank:
        rounds.follow(assembled, Follower(socks[0], others, stamp, asked.wait_deadline_s))
        return
    leader = Leader(socks, others, stamp, asked.wait_deadline_s) if socks else None
    rounds.lead(asked, assembled, channel, progress, leader)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
