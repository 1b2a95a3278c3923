"""A thread waits for a condition that nobody signals: where it is can be seen, why cannot."""

import threading

from firstlight.testing.stage import options, say


def main() -> None:
    options(__doc__).parse_args()
    condition = threading.Condition()
    say("stuck")
    with condition:
        condition.wait()


if __name__ == "__main__":
    main()
