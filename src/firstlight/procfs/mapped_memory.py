"""What a process has in its memory: files that it maps, and bytes. All of it takes the target's mmap lock."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_DELETED = " (deleted)"


def _rows(pid: int, holding: bytes = b"") -> Iterator[list[bytes]]:
    """Rows of /proc/PID/maps with `holding` in them: addresses, mode, offset, device, inode, and a path if any."""
    with Path(f"/proc/{pid}/maps").open("rb") as rows:
        for row in rows:
            if holding in row:
                yield row.rstrip(b"\n").split(maxsplit=5)


def _span(addresses: bytes) -> tuple[int, int]:
    begin, _, end = addresses.partition(b"-")
    return int(begin, 16), int(end, 16)


class Mapping(NamedTuple):
    """One row of /proc/PID/maps: where a file lies in a process's memory. `file` is its device and inode."""

    begin: int
    end: int
    file: tuple[str, int]
    path: str


def mappings(pid: int, under: str) -> list[Mapping]:
    """Where a process maps files whose path begins with `under`. Takes the target's mmap lock."""
    prefix = under.encode()
    return [
        Mapping(*_span(row[0]), (row[3].decode(), int(row[4])), row[5].decode(errors="replace"))
        for row in _rows(pid, prefix)
        if len(row) > 5 and row[5].startswith(prefix)
    ]


class CodeMapping(NamedTuple):
    """Executable memory, the bytes of a file from `offset` on; `path` empty or in brackets where it is none."""

    begin: int
    end: int
    offset: int
    path: str


def code_mappings(pid: int) -> list[CodeMapping]:
    """What a process may execute, by rising address. Takes the target's mmap lock."""
    return [
        CodeMapping(*_span(row[0]), int(row[2], 16), b"".join(row[5:]).decode(errors="surrogateescape"))
        for row in _rows(pid)
        if b"x" in row[1]
    ]


class MappedFile(NamedTuple):
    """A file that a process maps. `device` and `inode` as the kernel tells them, `code` if any of it may be executed,
    `deleted` if its name is gone from the disk or means another file by now."""

    path: str
    device: str
    inode: int
    code: bool
    deleted: bool


def mapped_files(pid: int) -> list[MappedFile]:
    """Every file that a process maps, once, in the order of the addresses. Takes the target's mmap lock."""
    found: dict[tuple[bytes, bytes], MappedFile] = {}
    for _, mode, _, device, inode, *rest in _rows(pid):
        if not rest or inode == b"0":
            continue
        name, code = rest[0], b"x" in mode
        known = found.get((inode, name))
        if known is None:
            path = name.decode(errors="replace")
            gone = path.endswith(_DELETED)
            found[inode, name] = MappedFile(path.removesuffix(_DELETED), device.decode(), int(inode), code, gone)
        elif code and not known.code:
            found[inode, name] = known._replace(code=True)
    return list(found.values())


def mapped(pid: int, under: str) -> set[str]:
    """Paths that begin with `under` among the files a process maps. Takes the target's mmap lock."""
    prefix = under.encode()
    paths = (row[5] for row in _rows(pid, prefix) if len(row) > 5)
    return {path.strip().decode(errors="replace") for path in paths if path.startswith(prefix)}


def maps(pid: int, name: str) -> bool:
    """Whether the process maps a file with `name` in its path. Takes the target's mmap lock."""
    return any(_rows(pid, name.encode()))


def memory(pid: int, address: int, length: int) -> bytes:
    """Up to `length` bytes of a process's memory, without stopping it.

    Takes the target's mmap lock; needs the right to ptrace it. Shorter where the mapping ends.
    """
    fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, length, address)
    finally:
        os.close(fd)
