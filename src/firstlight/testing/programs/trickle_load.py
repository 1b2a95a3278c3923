"""Healthy and slow: the weights come through a pipe at 50 kB/s, without a log line; then it serves."""

import os
import time

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, say, start

BYTES_A_SECOND = 50_000
CHUNKS_A_SECOND = 10


def feed(pipe: int, seconds: float) -> None:
    for _ in range(int(seconds * CHUNKS_A_SECOND)):
        os.write(pipe, bytes(BYTES_A_SECOND // CHUNKS_A_SECOND))
        time.sleep(1 / CHUNKS_A_SECOND)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    given = parser.parse_args()
    source, sink = os.pipe()
    start("feeder", feed, sink, given.seconds)
    os.close(sink)
    say("Loading weights from the network file system")
    while os.read(source, 65536):
        pass
    serve(TinyServer(given.port))


if __name__ == "__main__":
    main()
