"""Healthy and slow: nobody answers its first attempts to reach a store, and after each it sleeps; then it serves.

Of the attempts it says nothing, so for all of that time nothing is seen of it but that it sleeps.
"""

import socket
import time

from firstlight.testing.launcher import free_port
from firstlight.testing.server import TinyServer, serve
from firstlight.testing.stage import options, say


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--attempts", type=int, default=2, help="that fail")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long it sleeps after each")
    given = parser.parse_args()
    say("Connecting to the store")
    for _ in range(given.attempts):
        try_to_reach(free_port())
        time.sleep(given.seconds)
    serve(TinyServer(given.port))


def try_to_reach(port: int) -> None:
    with socket.socket() as connection:
        connection.connect_ex(("127.0.0.1", port))


if __name__ == "__main__":
    main()
