"""A worker sends its results over TCP to an engine that does not read them; both buffers are full."""

import socket

from firstlight.testing.stage import options, say, start, wait_for_ever


def work(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        say("stuck")
        while True:
            connection.sendall(bytes(1 << 16))


def engine(listener: socket.socket) -> None:
    _connection, _ = listener.accept()
    wait_for_ever()


def main() -> None:
    options(__doc__).parse_args()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    start("EngineCore", engine, listener)
    start("worker_TP0", work, port).join()


if __name__ == "__main__":
    main()
