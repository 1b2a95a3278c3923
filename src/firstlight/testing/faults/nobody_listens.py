"""A rank tries again and again to reach the master's port, on which nobody listens."""

import os
import socket
import sys
import time

from firstlight.testing.launcher import free_port
from firstlight.testing.stage import options, say, start


def join_the_others(host: str, port: int) -> None:
    say("stuck")
    while True:
        try:
            socket.create_connection((host, port), timeout=5).close()
        except OSError:
            time.sleep(0.2)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ipv6", action="store_true", help="the address is IPv6, the master listens on IPv4")
    given = parser.parse_args()
    if "MASTER_ADDR" not in os.environ:
        os.environ |= {"MASTER_ADDR": "::1" if given.ipv6 else "127.0.0.1", "MASTER_PORT": str(free_port())}
        module = "firstlight.testing.faults.nobody_listens"
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    listener = socket.create_server(("127.0.0.1", address[1])) if given.ipv6 else None
    start("worker_TP1", join_the_others, *address).join()
    if listener:
        listener.close()


if __name__ == "__main__":
    main()
