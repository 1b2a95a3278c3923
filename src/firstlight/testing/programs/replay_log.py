"""Prints a recorded log of another server at its own pace, with child processes of given titles; then serves.

It is a replay: the lines and their pace are real, the work is not. It stands in for engines that this machine
cannot run.
"""

import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, start, wait_for_ever

_TIME_OF_DAY = re.compile(rb"\b(\d\d):(\d\d):(\d\d)\b")
GAP_MAX_S = 3.0
"""No pause of the replay is longer, whatever the recording did."""


def paced(log: bytes, scale: float, until: str) -> Iterator[tuple[float, bytes]]:
    """Each line (ends kept) with the seconds to wait before it; ends before the first line with `until` in it."""
    before: int | None = None
    for line in log.splitlines(keepends=True):
        if until and until.encode() in line:
            return
        found = _TIME_OF_DAY.search(line)
        now = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3]) if found else before
        pause = (now - before) * scale if now is not None and before is not None else 0.0
        before = now
        yield min(max(pause, 0.0), GAP_MAX_S), line


def replay(
    log: Path, *, port: int, model: str = "tiny", titles: Sequence[str] = (), scale: float = 0.1, until: str = ""
) -> None:
    """Print `log` to stderr and serve on `port`."""
    for title in titles:
        start(title, wait_for_ever)
    for pause, line in paced(log.read_bytes(), scale, until):
        time.sleep(pause)
        sys.stderr.buffer.write(line)
        sys.stderr.flush()
    serve(TinyServer(port, model=model))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--title", action="append", default=[], help="the title of a child process; repeat it")
    parser.add_argument("--scale", type=float, default=0.1, help="0.1 is ten times as fast as it was")
    parser.add_argument("--until", default="", help="stop before the line with this text")
    given = parser.parse_args()
    replay(given.log, port=given.port, titles=given.title, scale=given.scale, until=given.until)


if __name__ == "__main__":
    main()
