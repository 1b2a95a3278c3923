"""A rank may open only few files: opening its sockets fails, it says so, and waits for what cannot come."""

import resource
import socket
import time

from firstlight.testing.stage import options, say, start, wait_for_ever

LIMIT = 64


def connect_all() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    sockets = []
    try:
        while True:
            sockets.append(socket.socket())
    except OSError as error:
        say(f"ERROR: {error}")
    say("stuck")
    while True:
        time.sleep(1)


def main() -> None:
    options(__doc__).parse_args()
    start("worker_TP0", connect_all)
    start("worker_TP1", wait_for_ever).join()


if __name__ == "__main__":
    main()
