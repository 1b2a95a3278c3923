"""Healthy with an unreadable log: binary garbage, half UTF-8, terminal escapes, a line without end; then serves."""

import os
import random

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, say

HALF_AN_ACCENT = "é".encode()[:1]
LONE_SURROGATE = b"\xed\xa0\x80"
CLEAR_SCREEN = b"\x1b[2J\x1b[H\x1b[31m"
SET_TITLE = b"\x1b]0;not your terminal\x07"


def garbage() -> bytes:
    noise = random.Random(2)
    return b"".join(
        [
            CLEAR_SCREEN + SET_TITLE + b"red\x1b[0m\n",
            b"half \xe2\x82" + HALF_AN_ACCENT + LONE_SURROGATE + b"\n",
            b"\r".join(b"%d%%" % percent for percent in range(100)) + b"\r\n",
            b"[bold]markup[/] [/nothing] {braces} %s \\u0000\n",
            noise.randbytes(1 << 20),
            b"\0" * 4096 + b"\n",
            b"x" * (1 << 20),
        ]
    )


def main() -> None:
    given = options(__doc__).parse_args()
    for stream in (1, 2):
        data = garbage()
        while data:
            data = data[os.write(stream, data) :]
    os.write(1, b"\n")
    say("the model is loaded")
    serve(TinyServer(given.port))


if __name__ == "__main__":
    main()
