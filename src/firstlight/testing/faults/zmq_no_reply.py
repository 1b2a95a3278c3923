"""The front asks the engine core over ZMQ and waits for a reply; the core took the request and is lost in a queue."""

import queue
import tempfile
from pathlib import Path

import zmq

from firstlight.testing.stage import options, say, start


def engine(address: str) -> None:
    socket = zmq.Context().socket(zmq.REP)
    socket.bind(address)
    socket.recv()
    say("stuck")
    queue.Queue[str]().get()


def main() -> None:
    options(__doc__).parse_args()
    address = f"ipc://{Path(tempfile.mkdtemp())}/handshake"
    start("EngineCore", engine, address)
    socket = zmq.Context().socket(zmq.REQ)
    socket.connect(address)
    socket.send(b"READY?")
    socket.recv()


if __name__ == "__main__":
    main()
