"""Ends with exit code 0 before it serves, as a command does that only prints its version or its help."""

import time

from firstlight.testing.stage import options, say


def main() -> None:
    options(__doc__).parse_args()
    say("nothing to do")
    time.sleep(0.5)


if __name__ == "__main__":
    main()
