"""Writes 200 MB of log as fast as it is read; then serves, or with --stall waits for ever."""

import os

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, say, wait_for_ever

LINES_A_BLOCK = 10_000


def write_log(megabytes: int) -> None:
    written = number = 0
    while written < megabytes << 20:
        block = "".join(
            f"DEBUG: kernel {number + line} selected for shape ({line}, 4096)\n" for line in range(LINES_A_BLOCK)
        )
        data = block.encode()
        number += LINES_A_BLOCK
        written += len(data)
        while data:
            data = data[os.write(1, data) :]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--stall", action="store_true")
    given = parser.parse_args()
    write_log(given.megabytes)
    say("the log is written")
    if given.stall:
        wait_for_ever()
    serve(TinyServer(given.port))


if __name__ == "__main__":
    main()
