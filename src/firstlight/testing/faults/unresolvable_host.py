"""A rank tries again and again to resolve a head node's name that no server knows."""

import os
import socket
import sys
import time

from firstlight.testing.stage import options, say, start

HEAD = "head-node.invalid"


def join_the_others() -> None:
    said = False
    while True:
        try:
            socket.getaddrinfo(os.environ["MASTER_ADDR"], 29500)
        except socket.gaierror as error:
            if not said:
                say(f"cannot resolve {os.environ['MASTER_ADDR']}: {error}; trying again")
                said = True
                say("stuck")
            time.sleep(0.5)


def main() -> None:
    options(__doc__).parse_args()
    if "MASTER_ADDR" not in os.environ:
        os.environ |= {"MASTER_ADDR": HEAD, "MASTER_PORT": "29500"}
        os.execv(sys.executable, [sys.executable, "-m", "firstlight.testing.faults.unresolvable_host"])
    start("worker_TP1", join_the_others).join()


if __name__ == "__main__":
    main()
