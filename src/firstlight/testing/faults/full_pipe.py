"""A worker writes its log into a pipe that its parent opened and never reads."""

import os

from firstlight.testing.stage import options, say, start, wait_for_ever


def work(pipe: int) -> None:
    say("stuck")
    while True:
        os.write(pipe, b"INFO: one more line of the log\n" * 64)


def main() -> None:
    options(__doc__).parse_args()
    _reading, writing = os.pipe()
    start("worker_TP0", work, writing)
    wait_for_ever()


if __name__ == "__main__":
    main()
