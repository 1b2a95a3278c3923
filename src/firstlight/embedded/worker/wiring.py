"""What ties the ranks of one server together, made before they start: the board, the meeting place, the sockets.

The front lays it, starts each rank with `arguments(rank)` and `descriptors(rank)`, and then lets go of all but the
board. With one rank there is the board alone. Nothing here has a name or a port that another server could take:

    --board-fd B      the stamps of all ranks (`board`)
    --store-fd S      an anonymous file in which torch.distributed exchanges addresses (its FileStore, opened through
                      /proc/self/fd/S); the connections themselves are on ports that the kernel chooses
    --peer-fd P …     Unix stream sockets for the passes (`peers`): rank 0 has one for each of ranks 1, 2, … in this
                      order, every other rank has one, to rank 0
"""

import argparse
import os
import socket

from firstlight.embedded.worker import board


class Wiring:
    """All of it, in the process that starts the ranks."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.board_fd = board.create(ranks)
        self._store_fd = os.memfd_create("firstlight-store") if ranks > 1 else -1
        self._pairs = [socket.socketpair() for _ in range(1, ranks)]

    def arguments(self, rank: int) -> list[str]:
        """The options of one rank's command line."""
        words = ["--rank", str(rank), "--ranks", str(self.ranks), "--board-fd", str(self.board_fd)]
        if self.ranks > 1:
            words += ["--store-fd", str(self._store_fd), "--peer-fd", *map(str, self._peer_fds(rank))]
        return words

    def descriptors(self, rank: int) -> tuple[int, ...]:
        """What one rank inherits."""
        return (self.board_fd, *([self._store_fd] if self.ranks > 1 else []), *self._peer_fds(rank))

    def let_go(self) -> None:
        """Close what only the ranks need, so that a rank's end closes its sockets."""
        for pair in self._pairs:
            for end in pair:
                end.close()
        if self._store_fd >= 0:
            os.close(self._store_fd)
        self._pairs, self._store_fd = [], -1

    def _peer_fds(self, rank: int) -> list[int]:
        return [near.fileno() for near, _ in self._pairs] if rank == 0 else [self._pairs[rank - 1][1].fileno()]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that `Wiring.arguments` writes."""
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--board-fd", type=int, required=True)
    parser.add_argument("--store-fd", type=int, default=-1)
    parser.add_argument("--peer-fd", type=int, nargs="*", default=[])


def peer_sockets(options: argparse.Namespace) -> list[socket.socket]:
    """A rank's sockets. From here on its own children (a compiler, say) do not inherit any of the descriptors."""
    for fd in (options.board_fd, options.store_fd, *options.peer_fd):
        if fd >= 0:
            os.set_inheritable(fd, False)
    return [socket.socket(fileno=fd) for fd in options.peer_fd]
