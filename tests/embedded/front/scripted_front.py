"""The real front with workers that follow a script (`scripted_worker`): takes the options of the engine."""

import sys
from pathlib import Path

from firstlight.embedded.options import parse_options
from firstlight.embedded.serve import serve

if __name__ == "__main__":
    worker = (sys.executable, str(Path(__file__).with_name("scripted_worker.py")))
    sys.exit(serve(parse_options(sys.argv[1:], "scripted", Path), "scripted", worker))
