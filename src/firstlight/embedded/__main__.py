"""`python -m firstlight.embedded [MODEL] …`: the engine as a program of its own."""

import sys
import time
from pathlib import Path

from firstlight import __version__
from firstlight.embedded.errors import EngineError
from firstlight.embedded.log import Log
from firstlight.embedded.machine import have_standard_streams
from firstlight.embedded.options import parse_options
from firstlight.embedded.serve import serve

TELL_EVERY_S = 1.0


def main(arguments: list[str], prog: str = "python -m firstlight.embedded") -> int:
    """Parse the command line and serve; returns the exit code."""
    have_standard_streams()
    log = Log("front")
    try:
        options = parse_options(arguments, prog, lambda model: _folder_of(model, log))
    except EngineError as error:
        log.say("error", str(error))
        return 1
    except KeyboardInterrupt:  # while the demo model is fetched
        return 0
    return serve(options, __version__)


def _folder_of(model: str, log: Log) -> Path:
    """The folder that is named; the demo model is fetched on first use."""
    from firstlight.embedded.demo.demo_model import SHORT_NAMES, ensure_demo_model

    if model not in SHORT_NAMES:
        return Path(model)
    told = 0.0

    def tell(doing: str, done: float, total: float) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_EVERY_S:
            told = time.monotonic()
            log.say("info", f"{doing}: {done:.0f} of {total:.0f} bytes")

    return ensure_demo_model(tell, quantised=SHORT_NAMES[model])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
