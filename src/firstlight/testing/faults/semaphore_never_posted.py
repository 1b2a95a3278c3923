"""Two workers wait for a semaphore in shared memory that the engine never posts."""

import multiprocessing
from multiprocessing.synchronize import Semaphore

from firstlight.testing.stage import options, say, start, wait_for_ever


def work(ready: Semaphore) -> None:
    say("stuck")
    ready.acquire()


def main() -> None:
    options(__doc__).parse_args()
    ready = multiprocessing.get_context("fork").Semaphore(0)
    start("worker_TP0", work, ready)
    start("worker_TP1", work, ready)
    wait_for_ever()


if __name__ == "__main__":
    main()
