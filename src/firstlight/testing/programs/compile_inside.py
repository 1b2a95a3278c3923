"""Healthy and slow: one native call that computes for --seconds without a log line; then it serves.

Its Python stack stands still all the while. With --hold-gil no other thread of the process can run Python either.
"""

import hashlib
import threading
import time
from collections.abc import Callable

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, say


def without_gil(rounds: int) -> None:
    hashlib.pbkdf2_hmac("sha256", b"graph", b"salt", rounds)


def with_gil(rounds: int) -> None:
    sum(range(rounds))


def rounds_for(seconds: float, compute: Callable[[int], None]) -> int:
    """How many rounds take `seconds` of CPU here, and so at least as long by the clock."""
    rounds = 10_000
    while True:
        began = time.process_time()
        compute(rounds)
        took = time.process_time() - began
        if took > 0.2:
            return int(rounds * seconds / took)
        rounds *= 4


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--hold-gil", action="store_true")
    given = parser.parse_args()
    compute = with_gil if given.hold_gil else without_gil
    rounds = rounds_for(given.seconds, compute)
    say("Compiling a graph")
    compiling = threading.Thread(target=compute, args=(rounds,), name="compile")
    compiling.start()
    compiling.join()
    serve(TinyServer(given.port))


if __name__ == "__main__":
    main()
