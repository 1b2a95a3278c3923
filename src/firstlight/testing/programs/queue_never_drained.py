"""Stalls: a parent joins its worker before it reads the queue that the worker must empty before it can end."""

import multiprocessing

from firstlight.testing.stage import options, say, start


def load(results: "multiprocessing.Queue[bytes]") -> None:
    results.put(bytes(4 << 20))
    say("worker is done")


def main() -> None:
    options(__doc__).parse_args()
    results: multiprocessing.Queue[bytes] = multiprocessing.Queue()
    worker = start("worker_TP0", load, results)
    say("waiting for the worker")
    worker.join()
    results.get()


if __name__ == "__main__":
    main()
