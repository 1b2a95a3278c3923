"""The entry of the `firstlight` script; `python -m firstlight` is the same.

Until the command line is read in there is nothing to put in order: Ctrl-C ends the program as it does any other, and
no traceback is shown.
"""

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Read the command line in, and run it."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not where a shell started us with the signal ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from firstlight.cli.main import main as run

    signal.signal(signal.SIGINT, handler)
    run()


if __name__ == "__main__":
    main()
