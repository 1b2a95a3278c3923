"""Healthy and quick: loads for a moment and serves. With --workers, the tokens come from worker processes."""

import time

from firstlight.testing.engine import PipedWorker
from firstlight.testing.server import TinyServer, one_token, serve
from firstlight.testing.stage import options, say


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long it loads")
    given = parser.parse_args()
    workers = [PipedWorker(f"worker_TP{rank}", one_token) for rank in range(given.workers)]
    for shard in range(1, 5):
        say(f"Loading weights: {shard}/4 shards")
        time.sleep(given.seconds / 4)
    serve(TinyServer(given.port, workers[0].generate if workers else one_token))


if __name__ == "__main__":
    main()
