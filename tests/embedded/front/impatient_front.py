"""The front with scripted workers, and with a second instead of half a minute for clients that hold a connection."""

import sys
from pathlib import Path

from firstlight.embedded.front import bodies, http
from firstlight.embedded.options import parse_options
from firstlight.embedded.serve import serve

if __name__ == "__main__":
    http.HEAD_DEADLINE_S = http.WRITE_DEADLINE_S = bodies.BODY_DEADLINE_S = 1.0
    worker = (sys.executable, str(Path(__file__).with_name("scripted_worker.py")))
    sys.exit(serve(parse_options(sys.argv[1:], "impatient", Path), "scripted", worker))
