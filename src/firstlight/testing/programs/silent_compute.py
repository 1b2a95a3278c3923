"""Healthy and slow: one Python thread computes for --seconds and the log is silent; then it serves."""

import threading
import time

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, say


def pack(seconds: float) -> None:
    ends = time.monotonic() + seconds
    scales = [1.0] * 4096
    while time.monotonic() < ends:
        scales = [value * 1.0001 if value < 2 else value / 2 for value in scales]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    given = parser.parse_args()
    say("Loading weights: 4/4 shards")
    packing = threading.Thread(target=pack, args=(given.seconds,), name="pack")
    packing.start()
    packing.join()
    serve(TinyServer(given.port))


if __name__ == "__main__":
    main()
