"""Serves, and is hard to end: it ignores SIGTERM, has a daemon in a session of its own, and a /dev/shm segment."""

import mmap
import os
import signal
from pathlib import Path

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import LIFE_S, call_myself, options, wait_for_ever

SEGMENT_BYTES = 1 << 20


def make_segment(name: str) -> mmap.mmap:
    path = Path("/dev/shm") / name
    path.write_bytes(bytes(SEGMENT_BYTES))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), SEGMENT_BYTES)


def daemonise() -> None:
    """Leave a grandchild behind, in a session of its own, whose parent is gone."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.alarm(LIFE_S)
    call_myself("daemon of its own")
    wait_for_ever()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--segment", default=f"firstlight_testing_{os.getpid()}", help="its name in /dev/shm")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    segment = make_segment(given.segment)
    daemonise()
    segment[0] = 1
    serve(TinyServer(given.port))


if __name__ == "__main__":
    main()
