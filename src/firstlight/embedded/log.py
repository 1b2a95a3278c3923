"""The engine's log on stderr: a stable grammar that a watcher can read.

    LINE    = "[firstlight " WHO " pid=" INT "] " MESSAGE
    WHO     = "front" | "worker rank=" INT
    MESSAGE = "start version=" VERSION " model=" PATH                 front, its first line
            | "listening host=" HOST " port=" INT                     front, the port that was really taken
            | "phase=" NAME " begin"
            | "phase=" NAME " end seconds=" FLOAT
            | "progress phase=" NAME " done=" INT " total=" INT " unit=" UNIT
            | "ready url=" URL " seconds=" FLOAT                      front, once
            | LEVEL ": " TEXT                                         LEVEL = "info" | "warning" | "error"

NAME is a start-up phase: http_bind, config (tokenizer) and serving in the front; config, import, rendezvous
(of several ranks), model_init, weights, kv_cache, draft_init, warmup and serving in a worker.
`phase=serving` ends only with the process.

A line is one `write(2)` of at most 4,096 bytes (PIPE_BUF, see pipe(7)), so lines of several processes do not mix.
A log that cannot be written (full disk, closed pipe) never stops the server.
"""

import contextlib
import os
from typing import Literal

STDERR = 2
PIPE_BUF = 4096

Level = Literal["info", "warning", "error"]


class Log:
    """Writes the lines of one process."""

    def __init__(self, who: str) -> None:
        self._prefix = f"[firstlight {who} pid={os.getpid()}] "

    def line(self, message: str) -> None:
        """Write one message; line breaks inside it begin a new line with the prefix."""
        for part in message.splitlines() or [""]:
            raw = (self._prefix + part).encode("utf-8", "replace")[: PIPE_BUF - 1]
            with contextlib.suppress(OSError):
                os.write(STDERR, raw + b"\n")

    def say(self, level: Level, text: str) -> None:
        """Free text for people; every line of it carries the level."""
        self.line("\n".join(f"{level}: {part}" for part in text.splitlines()))

    def phase_begins(self, phase: str) -> None:
        self.line(f"phase={phase} begin")

    def phase_ends(self, phase: str, seconds: float) -> None:
        self.line(f"phase={phase} end seconds={seconds:.3f}")

    def progress(self, phase: str, done: int, total: int, unit: str) -> None:
        self.line(f"progress phase={phase} done={done} total={total} unit={unit}")


class Silence(Log):
    """Writes nothing: for an engine inside another program."""

    def line(self, message: str) -> None:
        pass
