"""Stalls: a parent is in `recv` on a pipe whose child died without a word, and holds the other end open itself."""

import multiprocessing
import os
import time
from multiprocessing.connection import Connection

from firstlight.testing.stage import options, say, start


def load(ready: Connection, code: int) -> None:
    say("Loading weights: 1/2 shards")
    time.sleep(0.5)
    os._exit(code)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--code", type=int, default=1, help="the child's exit status")
    given = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    start("worker_TP0", load, theirs, given.code)
    ours.recv()


if __name__ == "__main__":
    main()
