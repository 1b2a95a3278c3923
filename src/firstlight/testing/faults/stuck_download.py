"""A download of weights has stopped: the connection stands, no byte comes, and the file is as long as it was."""

import socket
import tempfile
from pathlib import Path

from firstlight.testing.stage import options, say, start, wait_for_ever

SENT = 1 << 20


def hub(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.recv(1024)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4000000000\r\n\r\n" + bytes(SENT))
    wait_for_ever()


def download(port: int, folder: Path) -> None:
    folder.mkdir(parents=True)
    with (
        socket.create_connection(("127.0.0.1", port)) as connection,
        (folder / "model.incomplete").open("wb") as file,
    ):
        connection.sendall(b"GET /someone/something/resolve/main/model.safetensors HTTP/1.1\r\n\r\n")
        received = 0
        while received < SENT:
            data = connection.recv(1 << 16)
            file.write(data)
            received += len(data)
        file.flush()
        say("stuck")
        while data := connection.recv(1 << 16):
            file.write(data)


def main() -> None:
    options(__doc__).parse_args()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    start("hub", hub, listener)
    folder = Path(tempfile.mkdtemp()) / "hub" / "models--someone--something" / "blobs"
    start("worker_TP0", download, port, folder).join()


if __name__ == "__main__":
    main()
