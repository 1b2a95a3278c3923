"""Stalls when asked: the port opens, /health says 200, /v1/models answers, and no completion ever comes."""

from firstlight.testing.engine import PipedWorker
from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, say, wait_for_ever


def lose(prompt: str) -> str:
    wait_for_ever()
    return ""


def main() -> None:
    given = options(__doc__).parse_args()
    worker = PipedWorker("worker_TP0", lose)
    say("the model is loaded")
    serve(TinyServer(given.port, worker.generate))


if __name__ == "__main__":
    main()
