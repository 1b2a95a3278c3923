"""Whole small files: in place at once or not at all, and for nobody else to read."""

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Put a whole file in place at once: readers see the old one or the new one, never a part.

    Raises:
        OSError: it could not be written; the old file is untouched.
    """
    beside = path.with_name(f"{path.name}.new")
    try:
        write_file(beside, data, os.O_CREAT | os.O_TRUNC)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def write_file(path: Path, data: bytes, flags: int = 0, *, sync: bool = False) -> None:
    """Write all of `data` from the beginning of a file that only its owner may read; `sync` waits for the disk.

    Raises:
        OSError: not all of it could be written.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
