"""Serves, then loses a rank: a worker gets SIGKILL some time after the first answer; /health goes on with 200."""

import os
import signal

from firstlight.testing.engine import PipedWorker
from firstlight.testing.server import TinyServer, one_token, serve
from firstlight.testing.stage import options


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--after", type=float, default=3.0, help="seconds from the first answer to the death")
    given = parser.parse_args()

    def answer_and_die_later(prompt: str) -> str:
        signal.signal(signal.SIGALRM, lambda number, frame: os.kill(os.getpid(), signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, given.after)
        return one_token(prompt)

    worker = PipedWorker("worker_TP0", answer_and_die_later)
    serve(TinyServer(given.port, worker.generate))


if __name__ == "__main__":
    main()
