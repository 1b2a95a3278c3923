"""How long `firstlight --help` takes, against a Python that does nothing. The aim: under 250 ms."""

import subprocess
import sys
import time
from pathlib import Path

from pairs import compare

FIRSTLIGHT = Path(sys.executable).with_name("firstlight")


def seconds_of(*command: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=60)
    return time.perf_counter() - began


print(__doc__)
compare(
    "python -c pass",
    lambda: seconds_of(sys.executable, "-c", "pass"),
    "firstlight --help",
    lambda: seconds_of(str(FIRSTLIGHT), "--help"),
    times=15,
)
