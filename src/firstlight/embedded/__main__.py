"""`python -m firstlight.embedded MODEL …`: the engine as a program of its own."""

import sys
from pathlib import Path

from firstlight import __version__
from firstlight.embedded.options import parse_options
from firstlight.embedded.serve import serve


def main(arguments: list[str], prog: str = "python -m firstlight.embedded") -> int:
    """Parse the command line and serve; returns the exit code."""
    return serve(parse_options(arguments, prog, _demo_model), __version__)


def _demo_model() -> Path:
    from firstlight.embedded.demo_model import ensure_demo_model

    return ensure_demo_model()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
