"""A file system of one file whose server stops answering what a test wants: a network mount that has lost its server.

Speaks the little of FUSE that is needed (linux/fuse.h, protocol 7.31). Closing it ends every call that hangs in it.
"""

import ctypes
import os
import struct
import threading
from collections.abc import Callable
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


class StoppedDisk:
    """Mounts at `point`. Requests of the kinds in `silent` are never answered."""

    def __init__(self, point: Path, silent: set[int]) -> None:
        """Raises OSError where that is not permitted."""
        self._point = point
        self.silent = silent
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
            answer = _ANSWERS[kind](node) if kind in _ANSWERS else None
            error = 0 if answer is not None else -_NOT_IMPLEMENTED
            body = answer or b""
            os.write(self._fd, struct.pack("=IiQ", 16 + len(body), error, unique) + body)


def _attributes(node: int) -> bytes:
    mode, size = (0o040755, 0) if node == _ROOT else (0o100644, SIZE)
    return struct.pack("=QQQQQQIIIIIIIIII", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


_ANSWERS: dict[int, Callable[[int], bytes]] = {
    INIT: lambda _node: struct.pack("=IIIIHHIIHH8I", 7, 31, 1 << 17, _READS_AHEAD, 12, 9, 4096, 1, 0, 0, *[0] * 8),
    GETATTR: lambda node: struct.pack("=QII", 0, 0, 0) + _attributes(node),
    LOOKUP: lambda _node: struct.pack("=QQQQII", _FILE, 0, 0, 0, 0, 0) + _attributes(_FILE),
    OPEN: lambda _node: struct.pack("=QII", 1, 0, 0),
}
