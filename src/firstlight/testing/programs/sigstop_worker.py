"""Stalls: a worker is stopped with SIGSTOP in the middle of its weights; its parent waits for "ready"."""

import multiprocessing
import os
import signal
import tempfile
import time
from multiprocessing.connection import Connection

from firstlight.testing.stage import options, say, start

SHARDS = 8
SHARD_BYTES = 4 << 20


def load(ready: Connection) -> None:
    with tempfile.TemporaryFile(buffering=0) as weights:
        weights.write(os.urandom(SHARDS * SHARD_BYTES))
        weights.seek(0)
        for shard in range(1, SHARDS + 1):
            weights.read(SHARD_BYTES)
            say(f"Loading weights: {shard}/{SHARDS} shards")
            time.sleep(0.2)
            if shard == SHARDS // 2:
                os.kill(os.getpid(), signal.SIGSTOP)
    ready.send("ready")


def main() -> None:
    options(__doc__).parse_args()
    ours, theirs = multiprocessing.Pipe()
    start("worker_TP0", load, theirs)
    say("waiting for the worker")
    ours.recv()


if __name__ == "__main__":
    main()
