"""What a look costs the server that is looked at: tokens a second of one request, with and without looks meanwhile.

The embedded engine decodes one request with one thread, so that the look has the other core. "looked at" has one deep
look in the middle of each request, as `firstlight look` takes it. The aim: 1 % at most, outside of pauses.
"""

import sys
import threading
import time

from firstlight import procfs
from firstlight.clock import SystemClock
from firstlight.core.process import Process
from firstlight.embedded.demo.demo_model import ensure_demo_model, progress_on
from firstlight.evidence import look
from pairs import compare
from servers import Server, embedded

TOKENS = 400
LOOK_AFTER_S = 0.3
PAIRS = 12
CLOCK = SystemClock()


def looked_at(server: Server) -> float:
    """Tokens a second of a request during which all processes of the server are looked at once."""
    looker = threading.Thread(target=look_once, args=(server,))
    looker.start()
    try:
        return alone(server)
    finally:
        looker.join()


def look_once(server: Server) -> None:
    time.sleep(LOOK_AFTER_S)
    stats = [procfs.stat(pid) for pid in server.pids]
    look([Process(id=one.id, ppid=one.ppid, name=one.comm, cmdline=()) for one in stats], clock=CLOCK, deep=True)


def alone(server: Server) -> float:
    return server.ask("Once upon a time", TOKENS).decoded_per_s


print(__doc__)
with embedded("the embedded engine", ensure_demo_model(progress_on(sys.stderr)), "--threads", "1") as server:
    if len(sys.argv) > 1:
        PAIRS = int(sys.argv[1])
    compare("alone", lambda: alone(server), "looked at", lambda: looked_at(server), PAIRS, unit=" tokens/s")
