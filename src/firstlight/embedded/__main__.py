"""`python -m firstlight.embedded [MODEL] …`: the engine as a program of its own."""

import sys
import time
from pathlib import Path

from firstlight import __version__
from firstlight.embedded.errors import EngineError
from firstlight.embedded.log import Log
from firstlight.embedded.options import parse_options
from firstlight.embedded.serve import serve

TELL_EVERY_S = 1.0


def main(arguments: list[str], prog: str = "python -m firstlight.embedded") -> int:
    """Parse the command line and serve; returns the exit code."""
    log = Log("front")
    try:
        options = parse_options(arguments, prog, lambda: _demo_model(log))
    except EngineError as error:
        log.say("error", str(error))
        return 1
    return serve(options, __version__)


def _demo_model(log: Log) -> Path:
    """The demo model, fetched on first use."""
    from firstlight.embedded.demo.demo_model import ensure_demo_model

    told = 0.0

    def tell(doing: str, done: float, total: float) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_EVERY_S:
            told = time.monotonic()
            log.say("info", f"{doing}: {done:.0f} of {total:.0f} bytes")

    return ensure_demo_model(tell)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
