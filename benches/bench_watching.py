"""What it costs to watch a server of eight processes at the default rate. The aim: under 1 % of a core, under 80 MB.

Counted is everything that firstlight starts for itself (the supervisor, the guard, helpers), not the server: CPU time
from /proc/<pid>/stat over a minute of serving, and resident memory (shared pages counted in each process).
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from pairs import free_port, machine
from processes import cpu_s, resident_mb, tree

FIRSTLIGHT = Path(sys.executable).with_name("firstlight")
SERVER = Path(__file__).with_name("eight_processes.py")
WATCHED_S = 60
SETTLE_S = 10
UP_LIMIT_S = 120


def server_pid_when_serving(events: IO[str]) -> int:
    """Read events until the first token is verified; the pid of the server's first process."""
    pid, line, give_up = 0, "it said nothing", time.monotonic() + UP_LIMIT_S
    for line in events:
        event = json.loads(line)
        if event["type"] == "started":
            pid = event["pid"]
        if event["type"] == "token_verified":
            return pid
        if event["type"] == "verdict" or time.monotonic() > give_up:
            break
    sys.exit(f"the server did not come up: {line}")


print(__doc__)
print(machine())
watcher = subprocess.Popen(
    [FIRSTLIGHT, "up", "--json", "--", sys.executable, SERVER, "--port", str(free_port())],
    stdout=subprocess.PIPE,
    text=True,
)
try:
    assert watcher.stdout is not None
    server = server_pid_when_serving(watcher.stdout)
    time.sleep(SETTLE_S)
    watched = len(tree(server, without=0))
    before, began = cpu_s(tree(watcher.pid, without=server)), time.monotonic()
    time.sleep(WATCHED_S)
    ours = tree(watcher.pid, without=server)
    spent, lasted = cpu_s(ours) - before, time.monotonic() - began
    print(f"  watching {watched} processes for {lasted:.0f} s: {100 * spent / lasted:.2f} % of one core, ", end="")
    print(f"{resident_mb(ours):.0f} MB in {len(ours)} processes\n")
finally:
    watcher.send_signal(signal.SIGTERM)
    watcher.communicate(timeout=60)
