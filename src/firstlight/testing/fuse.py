"""A file system of one file whose server is slow, or stops answering: a network mount, or one that lost its server.

Speaks the little of FUSE that is needed (linux/fuse.h, protocol 7.31). Closing it ends every call that hangs in it.
"""

import ctypes
import os
import struct
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

NAME = b"model.safetensors"
SIZE = 1 << 20

LOOKUP, GETATTR, OPEN, READ, INIT = 1, 3, 14, 15, 26
_FORGETS = {2, 42}
_ROOT, _FILE = 1, 2
_FORCE, _DETACH = 1, 2
_READS_AHEAD = 1
"""FUSE_ASYNC_READ: pages are asked for ahead, and whoever needs one waits for it in D state."""
_NOT_IMPLEMENTED = 38
_LIBC = ctypes.CDLL(None, use_errno=True)
_IN = struct.Struct("=IIQQIIII")
_READ_IN = struct.Struct("=QQI")


class Disk:
    """Mounts at `point` a file of `size` zeros. Requests of the kinds in `silent` are never answered, and every read
    takes `read_s` seconds."""

    def __init__(self, point: Path, silent: Collection[int] = (), *, size: int = SIZE, read_s: float = 0.0) -> None:
        """Raises OSError where that is not permitted."""
        self._point = point
        self._size = size
        self._read_s = read_s
        self.silent = set(silent)
        self.asked: list[int] = []
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0,allow_other"
        if _LIBC.mount(b"stopped", os.fsencode(point), b"fuse", 6, options.encode()) != 0:
            os.close(self._fd)
            raise OSError(ctypes.get_errno(), "no right to mount here")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def file(self) -> Path:
        return self._point / NAME.decode()

    def close(self) -> None:
        _LIBC.umount2(os.fsencode(self._point), _FORCE | _DETACH)
        self._thread.join(20)
        os.close(self._fd)

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._fd, 1 << 18)
            except OSError:
                return
            _length, kind, unique, node, *_who = _IN.unpack_from(request)
            self.asked.append(kind)
            if kind in self.silent or kind in _FORGETS:
                continue
            answer = self._answer(kind, node, request[_IN.size :])
            error = 0 if answer is not None else -_NOT_IMPLEMENTED
            body = answer or b""
            os.write(self._fd, struct.pack("=IiQ", 16 + len(body), error, unique) + body)

    def _answer(self, kind: int, node: int, asked: bytes) -> bytes | None:
        if kind == READ:
            time.sleep(self._read_s)
            _handle, offset, length = _READ_IN.unpack_from(asked)
            return bytes(max(0, min(length, self._size - offset)))
        return _ANSWERS[kind](node, self._size) if kind in _ANSWERS else None


def _attributes(node: int, length: int) -> bytes:
    mode, size = (0o040755, 0) if node == _ROOT else (0o100644, length)
    return struct.pack("=QQQQQQIIIIIIIIII", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


_ANSWERS: dict[int, Callable[[int, int], bytes]] = {
    INIT: lambda _node, _size: struct.pack(
        "=IIIIHHIIHH8I", 7, 31, 1 << 17, _READS_AHEAD, 12, 9, 4096, 1, 0, 0, *[0] * 8
    ),
    GETATTR: lambda node, size: struct.pack("=QII", 0, 0, 0) + _attributes(node, size),
    LOOKUP: lambda _node, size: struct.pack("=QQQQII", _FILE, 0, 0, 0, 0, 0) + _attributes(_FILE, size),
    OPEN: lambda _node, _size: struct.pack("=QII", 1, 0, 0),
}
