"""A worker of an earlier run, whose parent is gone, still holds the port; the new server tries again and again."""

import os
import socket
import time

from firstlight.testing.launcher import free_port
from firstlight.testing.stage import call_myself, options, say, wait_for_ever


def leave_behind(port: int) -> None:
    """A process that listens on the port, under a name an engine gives, adopted by init."""
    listener = socket.create_server(("127.0.0.1", port))
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            call_myself("VLLM::EngineCore")
            wait_for_ever()
        os._exit(0)
    os.wait()
    listener.close()


def main() -> None:
    given = options(__doc__).parse_args()
    port = given.port or free_port()
    leave_behind(port)
    said = False
    while True:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError as error:
            if not said:
                say(f"ERROR: {error}; trying again")
                say("stuck")
            said = True
            time.sleep(0.5)


if __name__ == "__main__":
    main()
