"""The rhythm of a slow start: pauses of random length, and bursts of CPU."""

import random
import time
from collections.abc import Iterator

PAUSE_MAX_S = 9.0
"""The longest that a way is silent: less than any watcher may take for a stall."""

Beats = Iterator[float]
"""The moments at which something is done, as seconds since the last; ends when the start is over."""


def beats(seed: int, seconds: float) -> Beats:
    """Pauses of random length, most short and some long, until `seconds` have passed."""
    pick = random.Random(seed)
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        pause = min(left, PAUSE_MAX_S, pick.lognormvariate(-0.5, 1.2))
        time.sleep(pause)
        yield pause


def burn(seconds: float) -> None:
    """Use that much CPU."""
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass
