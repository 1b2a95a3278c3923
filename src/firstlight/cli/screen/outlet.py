"""A way out for text that never makes its writer wait.

A terminal after Ctrl-S, a pipe whose reader sleeps: both take a few kilobytes and then hold up whoever writes, for as
long as they like. The watching of a server must go on meanwhile.
"""

import os
import threading
from collections import deque
from typing import TextIO

WAITING_CHARS_MAX = 16 * 1024 * 1024
DRAIN_S = 5.0
IDLE_S = 60.0


class Outlet:
    """Writes to a stream's descriptor from a thread of its own.

    Text that has to wait is held up to a limit, then dropped. When nobody reads any more everything is dropped.
    """

    def __init__(self, stream: TextIO) -> None:
        stream.flush()
        self.encoding = stream.encoding
        self._stream = stream  # kept, since its descriptor is closed with it
        self._fd = stream.fileno()
        self._changed = threading.Condition()
        self._waiting: deque[str] = deque()
        self._waiting_chars = 0
        self._writing = False
        self._gone = False
        threading.Thread(target=self._pump, name=f"firstlight: output {self._fd}", daemon=True).start()

    def write(self, text: str, /) -> int:
        with self._changed:
            if not self._gone and self._waiting_chars + len(text) <= WAITING_CHARS_MAX:
                self._waiting.append(text)
                self._waiting_chars += len(text)
                self._changed.notify_all()
        return len(text)

    def flush(self) -> None:
        """Nothing to do: the thread writes as soon as it can."""

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def fileno(self) -> int:
        return self._fd

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal, as they are now.

        Raises:
            OSError: it is no terminal.
        """
        columns, lines = os.get_terminal_size(self._fd)
        return columns, lines

    @property
    def behind(self) -> bool:
        """True while there is text that could not be written yet."""
        with self._changed:
            return bool(self._waiting) or self._writing

    def drain(self, seconds: float = DRAIN_S) -> bool:
        """Wait until everything is written or nobody reads any more; false if the time did not suffice."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._writing, seconds)

    def _pump(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                if not self._changed.wait_for(lambda: self._waiting, IDLE_S):
                    continue
                text = "".join(self._waiting)
                self._waiting.clear()
                self._waiting_chars = 0
                self._writing = True
            if not self._gone:
                self._put(text.encode(self.encoding, errors="replace"))

    def _put(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:  # the reader or the terminal is gone
            self._gone = True
