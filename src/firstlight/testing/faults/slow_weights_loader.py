"""A worker reads its weights from a file system in a program of its own, which takes its time for every piece: slow,
and not stuck. Needs root.

It is mounted in a mount namespace of the program's own, as a container has one.
"""

import os
import tempfile
from pathlib import Path

from firstlight.testing.fuse import Disk
from firstlight.testing.stage import mount_namespace, options, say, start, wait_for_ever

BYTES = 64 << 20
READ_S = 0.3
PIECE = 1 << 17


def load_weights(path: Path) -> None:
    say("Loading weights: 0/1 shards")
    with path.open("rb", buffering=0) as file:
        file.read(PIECE)
        say("stuck")
        while file.read(PIECE):
            pass


def disk_at(point: Path) -> Path:
    """A slow disk in a process that is none of the server's; the file on it."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        disk = Disk(point, size=BYTES, read_s=READ_S)
        os.write(writing, os.fsencode(disk.file))
        wait_for_ever()
    os.wait()
    os.close(writing)
    return Path(os.fsdecode(os.read(reading, 4096)))


def main() -> None:
    options(__doc__).parse_args()
    mount_namespace()
    start("worker_TP0", load_weights, disk_at(Path(tempfile.mkdtemp()))).join()


if __name__ == "__main__":
    main()
