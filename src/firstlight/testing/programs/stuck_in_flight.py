"""Serves one completion; the worker never comes back from the next one, without using any CPU."""

import itertools

from firstlight.testing.engine import PipedWorker
from firstlight.testing.server import TinyServer, one_token, serve
from firstlight.testing.stage import options, wait_for_ever

asked = itertools.count()


def answer_once(prompt: str) -> str:
    if next(asked):
        wait_for_ever()
    return one_token(prompt)


def main() -> None:
    given = options(__doc__).parse_args()
    worker = PipedWorker("worker_TP0", answer_once)
    serve(TinyServer(given.port, worker.generate))


if __name__ == "__main__":
    main()
