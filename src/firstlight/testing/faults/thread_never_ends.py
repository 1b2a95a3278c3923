"""The engine joins a thread that waits for a connection nobody makes."""

import socket
import threading

from firstlight.testing.stage import options, say


def receive(listener: socket.socket) -> None:
    say("stuck")
    listener.accept()


def main() -> None:
    options(__doc__).parse_args()
    listener = socket.create_server(("127.0.0.1", 0))
    receiver = threading.Thread(target=receive, args=(listener,), name="kv-receiver")
    receiver.start()
    receiver.join()


if __name__ == "__main__":
    main()
