"""A program that measures how long it is stopped from outside, for bench_look.py. THREADS compute|wait FILE

Its main thread ticks, in a tight loop or every millisecond; the others wait. Of the time between two ticks it takes
away what it ran, what it waited for a CPU (/proc/thread-self/schedstat, sched-stats.rst) and what it slept of its own
will; what is left is a stop. The longest is kept in FILE as a double, where the bench reads it and sets it back to 0.
"""

import mmap
import os
import struct
import sys
import threading
import time
from pathlib import Path

SLEEP_S = 0.001
APART_S = 0.0005

threads, mode, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
slept = SLEEP_S if mode == "wait" else 0.0
with Path(path).open("r+b") as file:
    longest = mmap.mmap(file.fileno(), 8)
for _ in range(threads - 1):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
stats = os.open("/proc/thread-self/schedstat", os.O_RDONLY)


def now() -> tuple[float, float]:
    """Seconds by the clock, and seconds that this thread ran or waited for a CPU, read at one moment."""
    while True:
        at = time.monotonic()
        ran, waited, _ = os.pread(stats, 100, 0).split()
        if time.monotonic() - at < APART_S:
            return at, (int(ran) + int(waited)) / 1e9


before = now()
print("ready", flush=True)
while True:
    if slept:
        time.sleep(slept)
    after = now()
    stopped = (after[0] - before[0]) - (after[1] - before[1]) - slept
    if stopped > struct.unpack("d", longest[:8])[0]:
        longest[:8] = struct.pack("d", stopped)
    before = after
