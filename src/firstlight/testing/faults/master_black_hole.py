"""A rank connects to a master address behind which everything is dropped: its socket stays in SYN-SENT.

On loopback a listener whose queue is full answers no further SYN, as a firewall would.
"""

import os
import socket
import sys

from firstlight.testing.stage import options, say, start, wait_for_ever

FILL = 4


def join_the_others() -> None:
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    say("stuck")
    with socket.create_connection(address, timeout=1800) as store:
        store.recv(1)


def black_hole() -> int:
    """A port of 127.0.0.1 that answers nobody any more; held by a process that is not the server's."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    port = int(listener.getsockname()[1])
    callers = [socket.socket() for _ in range(FILL)]
    for caller in callers:
        caller.setblocking(False)
        caller.connect_ex(("127.0.0.1", port))
    if os.fork() == 0:
        os.setsid()
        wait_for_ever()
    return port


def main() -> None:
    options(__doc__).parse_args()
    if "MASTER_ADDR" not in os.environ:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(black_hole())}
        os.execv(sys.executable, [sys.executable, "-m", "firstlight.testing.faults.master_black_hole"])
    start("worker_TP1", join_the_others).join()


if __name__ == "__main__":
    main()
