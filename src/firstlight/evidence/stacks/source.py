"""The source text of the innermost frames, so that a stack can be read without the program at hand.

Price: reads. Files are read through the target's own root, may lie on a dead network file system, and are therefore
read where that can be abandoned. A file changed since the process started is left alone: its lines would lie.
"""

import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from firstlight.core import redact
from firstlight.core.look import Frame

FRAMES_MAX = 8
FILE_BYTES_MAX = 2 * 1024 * 1024
LINE_MAX = 200
BOOT_TIME_ERROR_S = 2.0
"""The kernel tells the time of the boot in whole seconds, and a start in ticks after it."""


class SourceLines:
    """Reads source lines of one process, each file once. `started` is the wall time of the process's start."""

    def __init__(self, pid: int, started: float) -> None:
        self._root = f"/proc/{pid}/root"
        self._started = started
        self._files: dict[str, list[str]] = {}

    def annotate(self, stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """The stack with `code` on its innermost frames, where the line could be read."""
        inner = (msgspec.structs.replace(frame, code=self._line(frame)) for frame in stack[:FRAMES_MAX])
        return (*inner, *stack[FRAMES_MAX:])

    def _line(self, frame: Frame) -> str:
        if frame.file not in self._files:
            self._files[frame.file] = self._read(frame.file)
        lines = self._files[frame.file]
        return redact.text(lines[frame.line - 1].strip()[:LINE_MAX]) if 0 < frame.line <= len(lines) else ""

    def _read(self, file: str) -> list[str]:
        if not file.startswith("/"):
            return []
        with suppress(OSError):
            path = Path(self._root + file)
            about = path.stat()
            fits = stat.S_ISREG(about.st_mode) and about.st_size <= FILE_BYTES_MAX
            if fits and about.st_mtime <= self._started + BOOT_TIME_ERROR_S:
                return path.read_bytes().decode(errors="replace").splitlines()
        return []
