"""A child is forked while another thread of its parent holds a lock; in the child nobody is left to release it."""

import threading
import warnings

from firstlight.testing.stage import options, say, start, wait_for_ever

LOCK = threading.Lock()


def load() -> None:
    say("stuck")
    with LOCK:
        say("weights loaded")


def hold_the_lock(held: threading.Event) -> None:
    with LOCK:
        held.set()
        wait_for_ever()


def main() -> None:
    options(__doc__).parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of exactly this
    held = threading.Event()
    threading.Thread(target=hold_the_lock, args=(held,), name="prefetch", daemon=True).start()
    held.wait()
    start("worker_TP0", load).join()


if __name__ == "__main__":
    main()
