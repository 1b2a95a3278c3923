"""Loses its port: while it loads, somebody else takes it. Then it ends with a traceback, or with --hang lives on.

Whoever asks that port gets the answers of the other process. The load lasts until the port is taken.
"""

import socket
import time

from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, say, wait_for_ever


def load_until_taken(port: int) -> None:
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--hang", action="store_true", help="log the error and stay")
    given = parser.parse_args()
    say("Loading weights: 1/1 shards")
    load_until_taken(given.port)
    try:
        server = TinyServer(given.port)
    except OSError as error:
        if not given.hang:
            raise
        say(f"ERROR: cannot listen on port {given.port}: {error}")
        wait_for_ever()
    serve(server)


if __name__ == "__main__":
    main()
