"""A worker has connected to the engine's port and waits for its hello; the engine listens and never accepts."""

import socket

from firstlight.testing.stage import options, say, start, wait_for_ever


def work(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        say("stuck")
        connection.recv(1)


def main() -> None:
    options(__doc__).parse_args()
    listener = socket.create_server(("127.0.0.1", 0))
    start("worker_TP0", work, listener.getsockname()[1])
    wait_for_ever()


if __name__ == "__main__":
    main()
