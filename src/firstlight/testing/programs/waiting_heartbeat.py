"""Stalls with a heartbeat: every five seconds it logs that it still waits, and uses a few milliseconds of CPU."""

import itertools
import time

from firstlight.testing.stage import options, say

BEAT_S = 5.0
BUSY_S = 0.005


def main() -> None:
    options(__doc__).parse_args()
    began = time.monotonic()
    for _ in itertools.count():
        say(f"Waiting for 1 core engine proc(s) ({time.monotonic() - began:.0f} s)")
        busy_until = time.process_time() + BUSY_S
        while time.process_time() < busy_until:
            pass
        time.sleep(BEAT_S)


if __name__ == "__main__":
    main()
